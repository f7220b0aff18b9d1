//! Attaches a volume, says what it is, and takes it away again when Enter is pressed.
//!
//! Reads connection info, as a storage system gives it, from a file:
//!
//! ```text
//! cargo run -p hawser-connect --example attach -- info.json
//! ```

use hawser_connect::{HostSettings, open};
use hawser_core::attach::{Attach, Detach, Multipath};
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Library;
use hawser_core::port::library::VolumeKey;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: attach INFO.json")?;
    let info: ConnectionInfo = serde_json::from_str(&std::fs::read_to_string(file)?)?;

    let library = open(HostSettings::default())?;
    let attach = Attach { multipath: Multipath::Wanted, ..Attach::default() };
    let device = library.connect(&info, &attach).await?.into_inner();
    println!("{} is {}", device.volume_id, device.path.display());
    for path in &device.paths {
        println!("  over {} ({}, {})", path.device, path.address, path.state);
    }

    println!("press Enter to take it away");
    std::io::stdin().read_line(&mut String::new())?;
    library.disconnect(&VolumeKey::Info(info), &Detach::default()).await?;
    println!("{} is gone", device.volume_id);
    Ok(())
}
