//! The addresses of this host, from the kernel's own tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use hawser_core::error::Result;
use hawser_core::port::kernel::Files;

/// Every address that is no loopback one, version 4 first.
pub(crate) fn all(files: &dyn Files) -> Result<Vec<IpAddr>> {
    let four = files.read_text(Path::new("/proc/net/fib_trie"))?.unwrap_or_default();
    let six = files.read_text(Path::new("/proc/net/if_inet6"))?.unwrap_or_default();
    Ok(local_v4(&four).map(IpAddr::from).chain(local_v6(&six).map(IpAddr::from)).collect())
}

/// Leaves of the routing trie that are `/32 host LOCAL`; the table stands there twice.
fn local_v4(trie: &str) -> impl Iterator<Item = Ipv4Addr> {
    let (mut leaf, mut found) = (None, Vec::new());
    for line in trie.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" {
            let new = leaf.filter(|a| !a.is_loopback() && !found.contains(a));
            found.extend(new);
        }
    }
    found.into_iter()
}

/// Lines such as `fe80…0001 02 40 20 80 eth0`: 32 hexadecimal digits first, the interface last.
fn local_v6(table: &str) -> impl Iterator<Item = Ipv6Addr> {
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let address = Ipv6Addr::from(u128::from_str_radix(words.next()?, 16).ok()?);
        (words.next_back() != Some("lo") && !address.is_loopback()).then_some(address)
    };
    table.lines().filter_map(one).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn local_addresses_are_read_once_and_without_loopback() {
        let trie = include_str!("../../testdata/corpus/proc_net_fib_trie/guest");

        let found: Vec<_> = local_v4(trie).collect();

        assert_eq!(found, [Ipv4Addr::new(10, 0, 2, 15)]);
    }

    #[test]
    fn version_6_addresses_come_without_those_of_lo() {
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n\
                     fe80000000000000505400fffe123456 02 40 20 80     eth0\n";

        let found: Vec<_> = local_v6(table).map(|a| a.to_string()).collect();

        assert_eq!(found, ["fe80::5054:ff:fe12:3456"]);
    }

    proptest! {
        #[test]
        fn any_table_is_read(text in "\\PC{0,200}") {
            let _ = (local_v4(&text).count(), local_v6(&text).count());
        }
    }

    hawser_testkit::fuzz_corpus!(trie, "proc_net_fib_trie", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = local_v4(&text).count();
    });

    hawser_testkit::fuzz_corpus!(inet6, "proc_net_if_inet6", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = local_v6(&text).count();
    });
}
