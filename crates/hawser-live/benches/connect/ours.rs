//! Hawser: its library in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hawser_connect::node::NodeHalf;
use hawser_connect::{HostSettings, open};
use hawser_core::attach::{Attach, Detach, Multipath};
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Library;
use hawser_core::port::library::{PropertiesRequest, VolumeKey};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::place::{Volume, Ways};
use crate::sides::Side;

/// The library, opened once.
pub(crate) struct Ours {
    library: Arc<NodeHalf>,
    runtime: Runtime,
}

impl Ours {
    pub(crate) fn new() -> Self {
        let library = open(HostSettings::default()).expect("the library opens");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        Self { library: Arc::new(library), runtime: runtime.expect("a runtime") }
    }

    /// How long the properties take.
    pub(crate) fn properties(&self) -> Duration {
        let wanted = PropertiesRequest { multipath: true, ..PropertiesRequest::default() };
        let begun = Instant::now();
        let answer = self.runtime.block_on(self.library.properties(&wanted));
        let took = begun.elapsed();
        assert!(answer.expect("properties").contains_key("initiator"));
        took
    }
}

fn info(volume: &Volume, ways: Ways) -> ConnectionInfo {
    let info = json!({ "driver_volume_type": "iscsi", "data": volume.data(ways) });
    serde_json::from_value(info).expect("a connection info")
}

impl Side for Ours {
    fn name(&self) -> &'static str {
        "hawser"
    }

    fn connect(&mut self, volumes: &[&Volume], ways: Ways) -> (Duration, Vec<PathBuf>) {
        let multipath = match ways {
            Ways::One => Multipath::Off,
            Ways::Two => Multipath::Wanted,
        };
        let infos: Vec<_> = volumes.iter().map(|volume| info(volume, ways)).collect();
        let begun = Instant::now();
        let all = infos.into_iter().map(|info| {
            let library = Arc::clone(&self.library);
            self.runtime.spawn(async move {
                let attach = Attach { multipath, ..crowd_deadline() };
                library.connect(&info, &attach).await
            })
        });
        let all: Vec<_> = all.collect();
        let answers = self.runtime.block_on(join_all(all));
        let took = begun.elapsed();
        let path = |answer: Result<Result<_, hawser_core::Error>, _>| {
            let answer = answer.expect("it does not panic");
            let change = answer.unwrap_or_else(|error| panic!("connect: {}", error.sentence()));
            let device: &hawser_core::port::library::DeviceInfo = hawser_core::Change::get(&change);
            device.path.clone()
        };
        (took, answers.into_iter().map(path).collect())
    }

    fn disconnect(&mut self, volumes: &[&Volume], ways: Ways) -> Duration {
        let keys: Vec<_> =
            volumes.iter().map(|volume| VolumeKey::Info(info(volume, ways))).collect();
        let begun = Instant::now();
        let all = keys.into_iter().map(|key| {
            let library = Arc::clone(&self.library);
            self.runtime.spawn(async move {
                let detach = Detach { deadline: LIMIT, ..Detach::default() };
                library.disconnect(&key, &detach).await
            })
        });
        let all: Vec<_> = all.collect();
        let answers = self.runtime.block_on(join_all(all));
        let took = begun.elapsed();
        for answer in answers {
            let answer = answer.expect("it does not panic");
            answer.unwrap_or_else(|error| panic!("disconnect: {}", error.sentence()));
        }
        took
    }
}

/// A guest without hardware virtualization takes its time with many at once.
const LIMIT: Duration = Duration::from_secs(300);

fn crowd_deadline() -> Attach {
    Attach { deadline: LIMIT, ..Attach::default() }
}
