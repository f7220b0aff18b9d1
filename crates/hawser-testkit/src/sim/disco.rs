//! DISCO's client, from its specification alone: messages of a length of 24, an operation, an id and
//! `DEFAULT-INSTID`, in network order; answers of four bytes, zero when it is done. It closes the
//! connection at everything else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::fake_host::FakeHost;
use crate::fake_host::kernel::{DiskSpec, Kernel, Lun};

/// A client on a port of its own, which knows one volume. It ends with the test's process.
pub fn install(host: &FakeHost, id: u64, lun: &Lun) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound port");
    let (kernel, lun) = (host.kernel().clone(), lun.clone());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever hangs up early gets no answer.
            let _ = serve(stream, &kernel, id, &lun);
        }
    });
    address
}

fn serve(mut stream: TcpStream, kernel: &Kernel, id: u64, lun: &Lun) -> std::io::Result<()> {
    let mut message = [0; 26];
    stream.read_exact(&mut message)?;
    let (head, asked) =
        (&message[..4], u64::from_be_bytes(message[4..12].try_into().unwrap_or_default()));
    if &message[12..] != b"DEFAULT-INSTID" {
        return Ok(());
    }
    let disk = format!("dms{id}");
    let there = kernel.edit(|tree| tree.disk_names().contains(&disk));
    let code: u32 = match (head, asked == id, there) {
        ([0, 24, 0, 1], true, false) => {
            kernel.edit(|tree| tree.add_disk(DiskSpec::new(disk, lun)));
            0
        }
        ([0, 24, 0, 2], true, true) => {
            kernel.edit(|tree| tree.remove_disk(&disk));
            0
        }
        ([0, 24, 0, 1], true, true) | ([0, 24, 0, 2], true, false) => 0,
        ([0, 24, 0, 1 | 2], false, _) => 2,
        _ => return Ok(()),
    };
    stream.write_all(&code.to_be_bytes())
}
