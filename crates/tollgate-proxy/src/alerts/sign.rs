//! Signs what is posted: HMAC-SHA-256 (RFC 2104), in hexadecimal.

use sha2::{Digest, Sha256};

use crate::hex;

/// The block of SHA-256 in bytes.
const BLOCK_BYTES: usize = 64;

/// The signature of `body` under `secret`.
pub(super) fn signature(secret: &[u8], body: &[u8]) -> String {
    let mut key = [0_u8; BLOCK_BYTES];
    let hashed;
    let secret = if secret.len() > BLOCK_BYTES {
        hashed = Sha256::digest(secret);
        &hashed[..]
    } else {
        secret
    };
    key.iter_mut().zip(secret).for_each(|(place, byte)| *place = *byte);
    let padded = |pad: u8| key.map(|byte| byte ^ pad);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(body).finalize();
    hex::text(&Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize())
}

#[cfg(test)]
mod tests {
    use super::signature;

    /// Test cases 1, 2 and 6 of RFC 4231.
    #[test]
    fn signatures_are_those_of_the_standard() {
        assert_eq!(
            signature(&[0x0b; 20], b"Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            signature(b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            signature(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
