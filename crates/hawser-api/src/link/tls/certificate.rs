//! Which nodes a certificate speaks for.

use hawser_core::name::NodeId;
use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, ServerName};

/// The zone in which nodes have names of their own; nothing resolves it.
const ZONE: &str = "node.hawser";

/// A name in the zone that no node can have, because node ids have no underscore: only `*.node.hawser`
/// covers it.
const ANY_NODE: &str = "any_node";

/// The certificate that a node showed, and that TLS has found valid.
pub(in super::super) struct NodeCertificate(CertificateDer<'static>);

impl NodeCertificate {
    /// The certificate at the head of a chain that TLS has checked.
    pub(super) fn first_of(chain: Option<&[CertificateDer<'_>]>) -> Option<Self> {
        chain?.first().map(|certificate| Self(certificate.clone().into_owned()))
    }

    /// True when it has the node's id as a name, the id within the zone of nodes, or the name that
    /// covers the whole zone: that one speaks for every node.
    pub(in super::super) fn speaks_for(&self, node: &NodeId) -> bool {
        let Ok(certificate) = ParsedCertificate::try_from(&self.0) else { return false };
        let has = |name: String| {
            ServerName::try_from(name)
                .is_ok_and(|name| verify_server_name(&certificate, &name).is_ok())
        };
        has(node.to_string()) || has(format!("{node}.{ZONE}")) || has(format!("{ANY_NODE}.{ZONE}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_names(names: &[&str]) -> NodeCertificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        NodeCertificate(made.cert.der().clone())
    }

    fn speaks(names: &[&str], node: &str) -> bool {
        with_names(names).speaks_for(&node.parse().unwrap())
    }

    #[test]
    fn a_certificate_speaks_for_the_nodes_that_it_names() {
        assert!(speaks(&["host-a"], "host-a"));
        assert!(speaks(&["HOST-A"], "host-a"));
        assert!(speaks(&["host-a.node.hawser"], "host-a"));
        assert!(speaks(&["x.example", "host-b.rack.example"], "host-b.rack.example"));
        assert!(speaks(&["host-b.rack.example.node.hawser"], "host-b.rack.example"));
        assert!(speaks(&["10.0.0.1"], "10.0.0.1"));
    }

    #[test]
    fn the_whole_zone_speaks_for_every_node() {
        for node in ["host-a", "host-b.rack.example", "any-node"] {
            assert!(speaks(&["*.node.hawser"], node), "{node}");
        }
    }

    #[test]
    fn other_names_speak_for_nobody_else() {
        for (names, node) in [
            (&["host-a"][..], "host-b"),
            (&["host-a.node.hawser"], "host-b"),
            (&["host-a.node.hawser"], "host"),
            (&["any-node.node.hawser"], "host-a"),
            (&["node.hawser"], "host-a"),
            (&["*.hawser"], "host-a"),
            (&["*.node.hawser.example"], "host-a"),
            (&["hawser-controller.storage.svc"], "host-a"),
            (&[], "host-a"),
        ] {
            assert!(!speaks(names, node), "{names:?} spoke for {node}");
        }
    }
}
