//! Posts alerts to one receiver.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use sha2::{Digest, Sha256};
use tollgate_config::Alert;

use crate::{
    error::StartError,
    hex,
    network::{Network, Transport},
    tls,
};

use super::{alert::BudgetAlert, sign::signature};

/// How long a receiver may take to be reached.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a receiver may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// One receiver.
pub(super) struct Receiver {
    pub(super) alert: Alert,
    /// What the record calls it: a hash of its URL, which may hold a credential.
    pub(super) name: String,
    client: Client<HttpsConnector<Transport>, Full<Bytes>>,
}

impl Receiver {
    pub(super) fn new(alert: &Alert, network: &Network) -> Result<Self, StartError> {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls::client_config(None)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(network.transport(CONNECT_TIMEOUT));
        // Connections are not kept: alerts are rare.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        let url_hash = Sha256::digest(alert.url.expose().as_bytes());
        let name = hex::text(url_hash.get(..16).unwrap_or_default());
        Ok(Self { alert: alert.clone(), name, client })
    }

    /// Sends an alert once. Anything but a success, a redirection among it, is a failure.
    ///
    /// # Errors
    ///
    /// What went wrong, without the URL.
    pub(super) async fn post(&self, alert: &BudgetAlert) -> Result<(), String> {
        let mut request = Request::post(self.alert.url.expose())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, "tollgate");
        if let Some(secret) = &self.alert.secret {
            let signature = signature(secret.expose().as_bytes(), alert.body.as_bytes());
            request = request.header("x-tollgate-signature", format!("sha256={signature}"));
        }
        let body = Full::new(Bytes::copy_from_slice(alert.body.as_bytes()));
        let request = request.body(body).map_err(|_| "its URL cannot be called".to_owned())?;
        match tokio::time::timeout(ANSWER_TIMEOUT, self.client.request(request)).await {
            Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
            Ok(Ok(answer)) => Err(format!("it answered {}", answer.status().as_u16())),
            Ok(Err(error)) if error.is_connect() => Err("it could not be reached".to_owned()),
            Ok(Err(_)) => Err("it closed without an answer".to_owned()),
            Err(_elapsed) => Err("it did not answer in time".to_owned()),
        }
    }
}
