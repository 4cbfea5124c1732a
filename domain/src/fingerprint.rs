//! A number made from a text, the same in every run, on every machine and in every version.

/// The FNV-1a hash of the text (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>). For spreading work and for
/// names; an attacker can find two texts with one fingerprint.
pub fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn fingerprints_never_change() {
        assert_eq!(fingerprint(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint("foobar"), 0x8594_4171_f739_67e8);
    }
}
