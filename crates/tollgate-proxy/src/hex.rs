//! Bytes as hexadecimal text.

/// Appends two lower-case digits a byte. Not by way of the formatter: calls have their session's id written.
pub(crate) fn push(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.reserve(bytes.len().saturating_mul(2));
    for byte in bytes {
        for half in [byte >> 4, byte & 0xf] {
            text.push(char::from(DIGITS[usize::from(half)]));
        }
    }
}

/// Two lower-case digits a byte.
pub(crate) fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    push(&mut text, bytes);
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_digits_a_byte() {
        assert_eq!(super::text(&[0, 0x0f, 0xa5, 0xff]), "000fa5ff");
    }
}
