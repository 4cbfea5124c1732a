//! Identifiers that look random and follow from a seed.

/// A UUID of version 4.
pub fn uuid(dice: &mut fastrand::Rng) -> String {
    let (high, low) = (dice.u64(..), dice.u64(..));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 48 & 0x3fff),
        low & 0xffff_ffff_ffff
    )
}
