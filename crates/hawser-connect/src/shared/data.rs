//! Numbers as they come in the wild: also as texts.

use serde::{Deserialize, Deserializer, de};

/// A number, or a text with a decimal or `0x` number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        match Form::deserialize(deserializer) {
            Ok(Form::Number(number)) => Ok(Self(number)),
            Ok(Form::Text(text)) => parse(text.trim())
                .map(Self)
                .ok_or_else(|| de::Error::custom("expected a number, decimal or with 0x")),
            Err(_) => Err(de::Error::custom("expected a number, decimal or with 0x")),
        }
    }
}

fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // `from_str_radix` takes a sign, which no field has.
        Some(hex) if hex.starts_with('+') => None,
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_come_as_numbers_and_texts() {
        for (value, number) in
            [(json!(1), Some(1)), (json!("7"), Some(7)), (json!(" 0x1F "), Some(31))]
                .into_iter()
                .chain([(json!(0), Some(0)), (json!(-1), None), (json!("+1"), None)])
                .chain([(json!(""), None), (json!("0x"), None), (json!(1.5), None)])
        {
            let read = serde_json::from_value::<Number>(value.clone()).ok().map(|n| n.0);
            assert_eq!(read, number, "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_number_or_refused(text in "\\PC{0,20}") {
            let _ = serde_json::from_value::<Number>(json!(text));
        }
    }
}
