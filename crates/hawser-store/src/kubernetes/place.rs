//! Where the records are: what the setting says, and the connection to the cluster that it names.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::task::spawn_blocking;

use super::error::{KubernetesError, said};

/// The longest that a connection may take to be made; less than the limit of a request, so that what
/// was never sent is known as such.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Who we are to the API server.
const AGENT: &str = concat!("hawser/", env!("CARGO_PKG_VERSION"));

/// The longest name of a namespace: a DNS label.
const LONGEST_NAMESPACE: usize = 63;

/// What follows `kubernetes:` in a setting.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    namespace: Option<String>,
    kubeconfig: Option<PathBuf>,
}

impl Place {
    /// Reads `NAMESPACE`, `NAMESPACE?kubeconfig=PATH`, either without the namespace.
    pub(super) fn parse(place: &str) -> Result<Self, KubernetesError> {
        let wrong = || KubernetesError::Setting { setting: format!("kubernetes:{place}") };
        let (namespace, kubeconfig) = match place.split_once('?') {
            Some((namespace, option)) => {
                let path = option.strip_prefix("kubeconfig=").filter(|path| !path.is_empty());
                (namespace, Some(path.ok_or_else(wrong)?.into()))
            }
            None => (place, None),
        };
        if !namespace.is_empty() && !is_namespace(namespace) {
            return Err(wrong());
        }
        let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
        Ok(Self { namespace, kubeconfig })
    }

    /// The client and the namespace. Connections are made when they are needed.
    pub(super) async fn connect(self) -> Result<(Client, String), KubernetesError> {
        let mut config = config(self.kubeconfig).await?;
        config.connect_timeout = Some(CONNECT_LIMIT);
        // The client would also repeat writes after 503 and 504, and then take its own first try
        // for somebody else's.
        config.default_retry = false;
        // So that logs and audits of the cluster say who asks.
        config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
        let namespace = match self.namespace {
            Some(namespace) => namespace,
            None => config.default_namespace.trim().to_owned(),
        };
        if !is_namespace(&namespace) {
            return Err(KubernetesError::Setting { setting: format!("kubernetes:{namespace}") });
        }
        // A kubeconfig may name a program that tells the credentials, and this waits for it.
        let client = spawn_blocking(|| Client::try_from(config)).await;
        let client = client.map_err(|_| KubernetesError::Closed)?;
        let client = client.map_err(|error| KubernetesError::Client { source: said(error) })?;
        Ok((client, namespace))
    }
}

fn is_namespace(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= LONGEST_NAMESPACE
        && text.bytes().all(|b| inner(b) || b == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().last().is_some_and(inner)
}

/// Where the API server is and who we are to it.
enum Source {
    /// A pod knows it by its service account.
    Pod(Box<Config>),
    /// Everybody else from a file.
    File(Box<Kubeconfig>, PathBuf),
}

async fn config(kubeconfig: Option<PathBuf>) -> Result<Config, KubernetesError> {
    let source = spawn_blocking(move || find(kubeconfig)).await;
    match source.map_err(|_| KubernetesError::Closed)?? {
        Source::Pod(config) => Ok(*config),
        Source::File(file, path) => {
            let config = Config::from_custom_kubeconfig(*file, &KubeConfigOptions::default()).await;
            config.map_err(|error| KubernetesError::Kubeconfig { path, source: said(error) })
        }
    }
}

/// The file that was named; else the pod's own account; else the default file. Blocks.
fn find(kubeconfig: Option<PathBuf>) -> Result<Source, KubernetesError> {
    if let Some(path) = kubeconfig {
        return match Kubeconfig::read_from(&path) {
            Ok(file) => Ok(Source::File(Box::new(file), path)),
            Err(error) => Err(KubernetesError::Kubeconfig { path, source: said(error) }),
        };
    }
    let in_cluster = match Config::incluster() {
        Ok(config) => return Ok(Source::Pod(Box::new(config))),
        Err(error) => Box::new(error),
    };
    match Kubeconfig::read() {
        Ok(file) => Ok(Source::File(Box::new(file), "(default)".into())),
        Err(error) => Err(KubernetesError::NoCluster { in_cluster, source: said(error) }),
    }
}

#[cfg(test)]
mod tests {
    use hawser_core::{Classify, Kind};

    use super::*;

    fn parsed(place: &str) -> Option<(Option<String>, Option<PathBuf>)> {
        let place = Place::parse(place).ok()?;
        Some((place.namespace, place.kubeconfig))
    }

    #[test]
    fn a_setting_names_a_namespace_a_file_both_or_neither() {
        assert_eq!(parsed(""), Some((None, None)));
        assert_eq!(parsed("hawser"), Some((Some("hawser".into()), None)));
        assert_eq!(
            parsed("a-1?kubeconfig=/etc/k?&=.conf"),
            Some((Some("a-1".into()), Some("/etc/k?&=.conf".into())))
        );
        assert_eq!(parsed("?kubeconfig=k"), Some((None, Some("k".into()))));
    }

    #[test]
    fn any_other_setting_is_refused_by_name() {
        let long = "a".repeat(64);
        for place in ["A", "a.b", "-a", "a-", "a/b", "a?", "a?kubeconfig=", "a?context=x", &long] {
            let error = Place::parse(place).expect_err(place);
            assert_eq!(error.kind(), Kind::Invalid, "{place}");
            assert!(error.to_string().contains(place), "{error}");
        }
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_there_or_is_none_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let (absent, wrong) = (folder.path().join("absent"), folder.path().join("wrong"));
        std::fs::write(&wrong, "apiVersion: v1\nkind: Config\n").unwrap();

        for path in [absent, wrong] {
            let place = Place::parse(&format!("a?kubeconfig={}", path.display())).unwrap();
            let Err(error) = place.connect().await else { panic!("{} was used", path.display()) };
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }

    #[tokio::test]
    async fn the_namespace_of_the_context_is_used_where_the_setting_names_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let text = "
apiVersion: v1
kind: Config
current-context: here
clusters: [{ name: here, cluster: { server: 'http://127.0.0.1:1', certificate-authority-data: Cg== } }]
contexts: [{ name: here, context: { cluster: here, user: me, namespace: storage } }]
users: [{ name: me, user: {} }]
";
        std::fs::write(&path, text).unwrap();
        let connect = |namespace: &str| {
            let place = format!("{namespace}?kubeconfig={}", path.display());
            Place::parse(&place).expect("a place").connect()
        };

        let (_, namespace) = connect("").await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(namespace, "storage");
        let (_, namespace) = connect("other").await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(namespace, "other");
    }
}
