//! What connections to providers are made of.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;

#[cfg(not(feature = "simulation"))]
pub(crate) type Transport = HttpConnector;
#[cfg(feature = "simulation")]
pub(crate) use crate::simulation::Transport;

/// What providers are reached by: the system's network, or in a simulation another one.
#[derive(Clone, Default)]
pub(crate) struct Network {
    #[cfg(feature = "simulation")]
    pub(crate) dial: Option<crate::simulation::Dial>,
}

impl Network {
    /// Makes connections below TLS. Each may take `connect_timeout`.
    pub(crate) fn transport(&self, connect_timeout: Duration) -> Transport {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(connect_timeout));
        #[cfg(feature = "simulation")]
        let tcp = Transport::new(tcp, self.dial.clone());
        tcp
    }
}
