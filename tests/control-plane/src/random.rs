//! Random names and secrets, so that runs beside each other never meet.

use ring::rand::{SecureRandom, SystemRandom};

/// A random (version 4) UUID in its usual spelling.
pub(crate) fn uuid() -> String {
    const VERSION_AND_VARIANT: u128 = 0xf000_c000_0000_0000_0000;
    const VERSION_4_OF_RFC_9562: u128 = 0x4000_8000_0000_0000_0000;
    let digits = format!("{:032x}", number() & !VERSION_AND_VARIANT | VERSION_4_OF_RFC_9562);
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// A bearer token that cannot be guessed.
pub(crate) fn token() -> String {
    format!("{:032x}", number())
}

#[expect(clippy::expect_used, reason = "without the system's random numbers nothing here can go on")]
fn number() -> u128 {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives random numbers");
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_says_that_it_is_random() {
        let uuid = uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert!(["8", "9", "a", "b"].contains(&&uuid[19..20]), "{uuid}");
        assert!(uuid.match_indices('-').map(|(place, _)| place).eq([8, 13, 18, 23]), "{uuid}");
    }
}
