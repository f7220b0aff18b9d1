//! Wire words for domain words.

/// Declares an enum of the wire and its conversions from and to the domain's.
///
/// Both matches are exhaustive: a word that is added to the domain fails to compile here until the
/// wire has one for it.
macro_rules! mirror {
    (
        $(#[$meta:meta])*
        $name:ident = $domain:ty {
            $($(#[$doc:meta])* $variant:ident),+ $(,)?
        }
    ) => {
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
        )]
        $(#[$meta])*
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$doc])* $variant),+
        }

        impl From<$domain> for $name {
            fn from(word: $domain) -> Self {
                match word {
                    $(<$domain>::$variant => Self::$variant),+
                }
            }
        }

        impl From<$name> for $domain {
            fn from(word: $name) -> Self {
                match word {
                    $($name::$variant => Self::$variant),+
                }
            }
        }
    };
}

pub(crate) use mirror;
