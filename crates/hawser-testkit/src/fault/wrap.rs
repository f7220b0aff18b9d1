//! The macro that wraps a port.

/// Wraps the async methods of a port: a point before and a point after each, and the list of their
/// names. The compiler refuses a wrapper that lacks a method.
macro_rules! wrap {
    (
        $(#[$doc:meta])*
        $wrapper:ident: $port:ident, $names:ident {
            $( $(#[$plain:meta])* plain { $($sync:item)* } )?
            $(async fn $method:ident(&self $(, $arg:ident: $type:ty)* $(,)?) -> $answer:ty;)*
        }
    ) => {
        $(#[$doc])*
        pub struct $wrapper {
            inner: std::sync::Arc<dyn $port>,
            faults: crate::fault::Faults,
        }

        impl $wrapper {
            /// Wraps one.
            pub fn new(inner: std::sync::Arc<dyn $port>, faults: &crate::fault::Faults) -> Self {
                Self { inner, faults: faults.clone() }
            }
        }

        const $names: &[&str] = &[$(concat!(stringify!($port), "::", stringify!($method))),*];

        #[async_trait::async_trait]
        impl $port for $wrapper {
            $($($sync)*)?
            $(
                async fn $method(&self $(, $arg: $type)*) -> $answer {
                    let name = concat!(stringify!($port), "::", stringify!($method));
                    self.faults.point(name, crate::fault::Side::Before).await;
                    let answer = self.inner.$method($($arg),*).await;
                    self.faults.point(name, crate::fault::Side::After).await;
                    answer
                }
            )*
        }
    };
}

/// The same for an ability of a provider, whose wrapper is the provider's.
macro_rules! wrap_ability {
    (
        $port:ident by $getter:ident, $names:ident {
            $( plain { $($sync:item)* } )?
            $(async fn $method:ident(&self $(, $arg:ident: $type:ty)* $(,)?) -> $answer:ty;)*
        }
    ) => {
        const $names: &[&str] = &[$(concat!(stringify!($port), "::", stringify!($method))),*];

        #[async_trait::async_trait]
        impl $port for FaultyProvider {
            $($($sync)*)?
            $(
                async fn $method(&self $(, $arg: $type)*) -> $answer {
                    let name = concat!(stringify!($port), "::", stringify!($method));
                    self.faults.point(name, crate::fault::Side::Before).await;
                    let ability = self.inner.$getter().expect("asked for through the getter");
                    let answer = ability.$method($($arg),*).await;
                    self.faults.point(name, crate::fault::Side::After).await;
                    answer
                }
            )*
        }
    };
}

pub(super) use {wrap, wrap_ability};
