//! Identifiers that look random and are not: the same seed gives the same ones.

/// A GUID in lower case, of the form of version 4, that depends on nothing but its arguments.
pub(crate) fn guid(seed: u64, purpose: &str, number: u64) -> String {
    let mut generator = Generator::new(seed ^ fnv1a(purpose) ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let bits = (u128::from(generator.next()) << 64) | u128::from(generator.next());
    // Version 4 and the variant bits of RFC 9562, section 5.4: https://www.rfc-editor.org/rfc/rfc9562#section-5.4
    let bits = bits & !(0xF000 << 64) | (0x4000 << 64);
    let bits = bits & !(0xC000 << 48) | (0x8000 << 48);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        bits >> 96,
        (bits >> 80) & 0xFFFF,
        (bits >> 64) & 0xFFFF,
        (bits >> 48) & 0xFFFF,
        bits & 0xFFFF_FFFF_FFFF
    )
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

/// `SplitMix64` (<https://prng.di.unimi.it/splitmix64.c>): enough to spread identifiers and to shuffle tests.
pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_guid_depends_on_seed_purpose_and_number_only() {
        assert_eq!(guid(7, "event", 1), guid(7, "event", 1));
        let distinct: BTreeSet<_> =
            (0..1000).flat_map(|n| [guid(7, "event", n), guid(8, "event", n), guid(7, "vm", n)]).collect();
        assert_eq!(distinct.len(), 3000);
    }

    #[test]
    fn a_guid_has_the_form_of_version_4() {
        let guid = guid(0, "event", 0);
        let lengths: Vec<_> = guid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&guid[14..15], "4");
        assert!("89ab".contains(&guid[19..20]), "{guid}");
    }
}
