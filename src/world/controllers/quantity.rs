//! Amounts of resources (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>).

use serde_json::Value;

/// The amount in a field in thousandths of its unit, cut to whole ones; `None` if it is not an amount. `100m` and `0.1` of a
/// processor are 100.
pub fn thousandths(field: &Value) -> Option<u64> {
    match field {
        Value::Number(number) => number.as_u64()?.checked_mul(1000),
        Value::String(text) => parse(text),
        _ => None,
    }
}

fn parse(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // Three decimals are all that thousandths can hold.
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let number = whole.checked_mul(1000)?.checked_add(digits.parse().ok()?)?;
    let (factor, divisor): (u128, u128) = match suffix {
        "" => (1, 1),
        "m" => (1, 1000),
        "u" => (1, 1_000_000),
        "n" => (1, 1_000_000_000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        _ => (10_u128.checked_pow(suffix.strip_prefix(['e', 'E'])?.parse().ok()?)?, 1),
    };
    u64::try_from(number.checked_mul(factor)? / divisor).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_read_with_every_suffix_in_use() {
        for (field, amount) in [
            (json!("100m"), Some(100)),
            (json!("0.1"), Some(100)),
            (json!(2), Some(2000)),
            (json!("1.5Gi"), Some(1_610_612_736_000)),
            (json!("128M"), Some(128_000_000_000)),
            (json!("1e3"), Some(1_000_000)),
            (json!("110"), Some(110_000)),
            (json!("many"), None),
            (json!(""), Some(0)),
            (Value::Null, None),
        ] {
            assert_eq!(thousandths(&field), amount, "{field}");
        }
    }
}
