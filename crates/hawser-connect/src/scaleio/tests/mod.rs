mod cases;
mod data;

use hawser_core::ByteSize;
use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::Lun;
use hawser_testkit::sim::scaleio::{GUID, Gateway, PASSWORD, USER};
use serde_json::{Value, json};

use super::*;

const NAME: &str = "vol 1/ä";
const ID: &str = "0a1b2c3d00000007";
const CERTIFICATE: &str = "/etc/ssl/gateway.pem";

static CONNECTOR: Scaleio = Scaleio;

/// A host with the client, a gateway, and one volume.
struct Storage {
    host: FakeHost,
    gateway: Gateway,
    volume: Lun,
}

impl Storage {
    fn new() -> Self {
        let host = FakeHost::new();
        host.kernel().file(CERTIFICATE, Gateway::certificate());
        let gateway = Gateway::start(&host);
        let volume = Lun::new(ByteSize::mib(8));
        gateway.add_volume(ID, NAME, &volume);
        Self { host, gateway, volume }
    }

    /// The data of the oldest form: everything is in them.
    fn data(&self) -> Value {
        json!({ "scaleIO_volname": NAME, "scaleIO_volume_id": ID, "hostIP": "192.0.2.60",
                "serverIP": "127.0.0.1", "serverPort": self.gateway.address().port(),
                "serverUsername": USER, "serverPassword": PASSWORD, "serverToken": "an-old-token",
                "iopsLimit": null, "bandwidthLimit": null, "certificate_path": CERTIFICATE })
    }

    /// Attaches with these data.
    fn rig(self, data: Value) -> (ConnectorRig, Gateway) {
        let rig = ConnectorRig::new(&CONNECTOR, self.host, info(data), ());
        (rig, self.gateway)
    }

    /// The same for the contract, which brings the gateway to its end.
    fn contract(self, data: Value) -> ConnectorRig {
        let mut info = info(data);
        info.identity = Some(Identity::new("scaleio", ID));
        ConnectorRig::new(&CONNECTOR, self.host, info, self.gateway)
    }
}

/// With a volume that can grow.
fn growing(storage: Storage, data: Value) -> ConnectorRig {
    let volume = storage.volume.clone();
    storage.contract(data).on_grow(move |_| {
        volume.resize(ByteSize::mib(16));
        ByteSize::mib(16)
    })
}

fn info(data: Value) -> ConnectionInfo {
    serde_json::from_value(json!({ "driver_volume_type": "powerflex", "data": data })).unwrap()
}

/// The data with one field changed; null takes it out.
fn with(mut data: Value, field: &str, value: Value) -> Value {
    if value.is_null() {
        data.as_object_mut().unwrap().remove(field);
    } else {
        data[field] = value;
    }
    data
}

/// Everything in the data.
fn oldest() -> ConnectorRig {
    let storage = Storage::new();
    // The password goes with a boot. What becomes of a disk that comes back is told in a case.
    storage.gateway.late_at_boot();
    let data = storage.data();
    growing(storage, data)
}

/// The password in the settings, the volume by its name alone.
fn by_name() -> ConnectorRig {
    let storage = Storage::new();
    storage.host.kernel().file(config::FILE, conf(PASSWORD));
    let mut data = with(storage.data(), "config_group", json!("powerflex"));
    for field in ["serverPassword", "serverToken", "scaleIO_volume_id"] {
        data = with(data, field, Value::Null);
    }
    growing(storage, data)
}

/// Mapped by whoever gave the info: the disk is there before, and stays.
fn mapped() -> ConnectorRig {
    let storage = Storage::new();
    storage.gateway.map(ID);
    storage.host.kernel().edit(|tree| tree.settle());
    storage.contract(new_data())
}

fn new_data() -> Value {
    json!({ "scaleIO_volname": NAME, "scaleIO_volume_id": ID, "sdc_guid": GUID.to_uppercase() })
}

fn conf(password: &str) -> String {
    format!(
        "# by hand\n[other]\nsan_password = x\n\n[powerflex]\nsan_username={USER}\nsan_password: {password}\n"
    )
}

hawser_testkit::connector_contract!(by_the_oldest_data, oldest());
hawser_testkit::connector_contract!(by_name_and_settings, by_name());
hawser_testkit::connector_contract!(mapped_before, mapped());
