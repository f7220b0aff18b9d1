//! Trees as text files: what a real host showed, or what one of another machine would show.
//!
//! One line each; blank lines and lines that begin with `#` say nothing:
//!
//! ```text
//! /sys/class/fc_host/host3/port_name = 0x2100001b32000001
//! /sys/block/sda -> ../devices/css0/0.0.1940/host0/block/sda
//! /sys/block/sda/device/vpd_pg83 = \x00\x83\x00\x14…
//! /sys/bus/ccw/devices/
//! /dev/sda : 8:0
//! ```
//!
//! A value ends with a line end, as the kernel's do, unless it holds a `\x` byte; in it `\n`, `\t`,
//! `\\` and `\xNN` are what they look like.

use super::tree::Tree;

impl Tree {
    /// Adds what a fixture describes.
    ///
    /// # Panics
    ///
    /// When a line is none of the forms: a fixture is part of a test.
    pub fn load(&mut self, fixture: &str) -> &mut Self {
        for (number, line) in fixture.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            self.load_line(line)
                .unwrap_or_else(|| panic!("line {} of a fixture: {line:?}", number + 1));
        }
        self
    }

    fn load_line(&mut self, line: &str) -> Option<()> {
        if !line.starts_with('/') {
            return None;
        }
        if let Some((path, target)) = line.split_once(" -> ") {
            self.link(path.trim_end(), target.trim_start());
        } else if let Some((path, number)) = line.split_once(" : ") {
            let (major, minor) = number.trim().split_once(':')?;
            self.block_node(path.trim_end(), (major.parse().ok()?, minor.parse().ok()?));
        } else if let Some((path, value)) = line.split_once(" = ") {
            self.file(path.trim_end(), unescape(value.trim_start())?);
        } else if let Some(path) = line.strip_suffix(" =") {
            self.file(path.trim_end(), "");
        } else if let Some(path) = line.strip_suffix('/') {
            self.folder(path);
        } else {
            return None;
        }
        Some(())
    }
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut binary) = (Vec::new(), false);
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next()? {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                binary = true;
            }
            _ => return None,
        }
    }
    if !binary {
        bytes.push(b'\n');
    }
    Some(bytes)
}
