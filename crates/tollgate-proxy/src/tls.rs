//! TLS towards providers: the platform's roots and, where a provider names one, its own CA.

use std::sync::{Arc, OnceLock};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::error::StartError;

/// The client configuration for a provider whose `ca_file` holds `ca_pem`.
pub(crate) fn client_config(ca_pem: Option<&[u8]>) -> Result<ClientConfig, StartError> {
    let mut roots = platform_roots().clone();
    if let Some(pem) = ca_pem {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| StartError::Certificate(error.to_string()))?;
            roots.add(certificate).map_err(|error| StartError::Certificate(error.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| StartError::Certificate(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Read once: a platform has a hundred and fifty of them.
fn platform_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in found.errors {
            tracing::warn!(%error, "a certificate of the platform cannot be read");
        }
        roots.add_parsable_certificates(found.certs);
        roots
    })
}
