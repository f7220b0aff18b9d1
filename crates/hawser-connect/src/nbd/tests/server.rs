//! A server that knows the handshake and nothing else: what comes after it goes to the kernel.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::wire;

/// How a server behaves.
#[derive(Clone, Debug)]
pub(super) struct Manners {
    pub(super) size: u64,
    pub(super) flags: u16,
    /// The exports it has.
    pub(super) exports: Vec<String>,
    /// What it says in its greeting.
    pub(super) handshake: u16,
    /// Knows `NBD_OPT_GO` and `NBD_OPT_INFO`.
    pub(super) knows_go: bool,
    /// Answers every request with this error.
    pub(super) refusal: Option<u32>,
    /// Says something else altogether, and hangs up.
    pub(super) greeting: Option<Vec<u8>>,
    pub(super) blocks: Option<[u32; 3]>,
    /// Takes connections and says nothing.
    pub(super) silent: bool,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            size: 8 << 20,
            flags: wire::HAS_FLAGS | 0b101100,
            exports: vec!["vol1".into()],
            handshake: wire::FIXED_NEWSTYLE | wire::NO_ZEROES,
            knows_go: true,
            refusal: None,
            greeting: None,
            blocks: None,
            silent: false,
        }
    }
}

/// A running server; it ends with the test's process at the latest.
pub(super) struct Server {
    shared: Arc<Shared>,
    folder: TempDir,
    port: u16,
}

struct Shared {
    manners: Mutex<Manners>,
    taken: Mutex<usize>,
}

impl Server {
    /// Listens on a Unix socket and on a port of 127.0.0.1.
    pub(super) fn new(manners: Manners) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared { manners: Mutex::new(manners), taken: Mutex::new(0) });
        let unix = UnixListener::bind(folder.path().join("s")).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let (one, two) = (Arc::clone(&shared), Arc::clone(&shared));
        thread::spawn(move || unix.incoming().flatten().for_each(|stream| one.serve(stream)));
        thread::spawn(move || tcp.incoming().flatten().for_each(|stream| two.serve(stream)));
        Self { shared, folder, port }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Changes its manners for connections to come.
    pub(super) fn change(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.shared.manners.lock().unwrap());
    }

    /// Waits until so many connections have come as far as the transmission phase.
    #[track_caller]
    pub(super) fn assert_taken(&self, count: usize) {
        let end = Instant::now() + Duration::from_secs(5);
        let taken = || *self.shared.taken.lock().unwrap();
        // The client knows before the server has counted.
        while taken() != count && Instant::now() < end {
            thread::yield_now();
        }
        assert_eq!(taken(), count);
    }

    /// Nobody listens any more.
    pub(super) fn hide(&self) {
        std::fs::remove_file(self.socket()).unwrap();
    }
}

impl Shared {
    fn serve(self: &Arc<Self>, stream: impl Read + Write + Send + 'static) {
        let shared = Arc::clone(self);
        thread::spawn(move || {
            let manners = shared.manners.lock().unwrap().clone();
            // Whoever hangs up is no concern of the server's.
            let _ = talk(stream, &manners, &shared.taken);
        });
    }
}

fn talk(mut stream: impl Read + Write, manners: &Manners, taken: &Mutex<usize>) -> io::Result<()> {
    if manners.silent {
        return wait_for_end(stream);
    }
    if let Some(greeting) = &manners.greeting {
        return stream.write_all(greeting);
    }
    stream.write_all(b"NBDMAGICIHAVEOPT")?;
    stream.write_all(&manners.handshake.to_be_bytes())?;
    let flags = read_u32(&mut stream)?;
    loop {
        let mut magic = [0; 8];
        stream.read_exact(&mut magic)?;
        let option = read_u32(&mut stream)?;
        let mut data = vec![0; read_u32(&mut stream)? as usize];
        stream.read_exact(&mut data)?;
        assert_eq!(&magic, b"IHAVEOPT");
        match option {
            1 => {
                if !manners.exports.iter().any(|name| name.as_bytes() == data) {
                    return Ok(());
                }
                stream.write_all(&manners.size.to_be_bytes())?;
                stream.write_all(&manners.flags.to_be_bytes())?;
                if flags & u32::from(wire::NO_ZEROES) == 0 {
                    stream.write_all(&[0; 124])?;
                }
                *taken.lock().unwrap() += 1;
                return wait_for_end(stream);
            }
            2 => return Ok(()),
            6 | 7 if answer(&mut stream, option, &data, manners)? && option == 7 => {
                *taken.lock().unwrap() += 1;
                return wait_for_end(stream);
            }
            6 | 7 => {}
            _ => reply(&mut stream, option, 1 << 31 | 1, &[])?,
        }
    }
}

/// Answers a request for information; true when it was granted.
fn answer(
    stream: &mut impl Write,
    option: u32,
    data: &[u8],
    manners: &Manners,
) -> io::Result<bool> {
    let refusal = if manners.knows_go { manners.refusal } else { Some(1) };
    if let Some(number) = refusal {
        reply(stream, option, 1 << 31 | number, b"because\x07 I say so")?;
        return Ok(false);
    }
    let length = u32::from_be_bytes(*data.first_chunk().unwrap()) as usize;
    let name = &data[4..4 + length];
    if !manners.exports.iter().any(|export| export.as_bytes() == name) {
        reply(stream, option, 1 << 31 | 6, b"")?;
        return Ok(false);
    }
    let mut export = vec![0, 0];
    export.extend(manners.size.to_be_bytes());
    export.extend(manners.flags.to_be_bytes());
    // Something that nobody asked for comes first: a description.
    reply(stream, option, 3, b"\0\x02a fine export")?;
    reply(stream, option, 3, &export)?;
    if let Some(blocks) = manners.blocks {
        let mut info = vec![0, 3];
        info.extend(blocks.iter().flat_map(|size| size.to_be_bytes()));
        reply(stream, option, 3, &info)?;
    }
    reply(stream, option, 1, b"")?;
    Ok(true)
}

fn reply(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    stream.write_all(&wire::OPTION_REPLY.to_be_bytes())?;
    stream.write_all(&option.to_be_bytes())?;
    stream.write_all(&kind.to_be_bytes())?;
    stream.write_all(&(data.len() as u32).to_be_bytes())?;
    stream.write_all(data)
}

fn read_u32(stream: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn wait_for_end(mut stream: impl Read) -> io::Result<()> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).map(drop)
}
