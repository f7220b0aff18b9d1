//! Records of somebody else, and what becomes of them.

use hawser_core::Outcome;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_login_that_is_tried_again_gives_back_what_was_there_before_the_first_try() {
    let rig = with_chap();
    let portal = rig.info.data["target_portal"].as_str().unwrap().to_owned();
    let file = format!("/etc/iscsi/nodes/{IQN}/{},1/default", portal.replace(':', ","));
    let theirs = "node.startup = automatic\nnode.session.auth.username_in = theirs\n";
    rig.host.kernel().file(&file, theirs);
    // It is listened there, so that the login is tried, which fails in a way that may pass.
    iscsi::set_portal(rig.host.kernel(), &portal, iscsi::PortalState::Refuses);

    let error = rig.connect().await.unwrap_err();
    let after_failure = rig.host.kernel().edit(|tree| tree.text(&file));
    let tries = iscsi::counts(rig.host.kernel()).1;
    iscsi::set_portal(rig.host.kernel(), &portal, iscsi::PortalState::Open);
    rig.connect().await.unwrap();

    assert_ne!(error.outcome(), Outcome::Unknown, "{error:?}");
    assert!(tries >= 3, "{tries}");
    assert_eq!(after_failure, theirs.trim(), "neither our settings nor our secret stay");
    assert_eq!(rig.host.kernel().edit(|tree| tree.text(&file)), theirs.trim());
}

#[tokio::test(start_paused = true)]
async fn a_second_try_stands_on_the_record_of_somebody_else_too() {
    let rig = with_chap();
    let volume = crate::iscsi::data::read(&rig.info).unwrap();
    let credentials = crate::iscsi::data::credentials(&rig.info).unwrap();
    let target = &volume.targets[0];
    let notes = Notes::of(&rig.host, &notes::Key::of(target));
    let portal = rig.info.data["target_portal"].as_str().unwrap().replace(':', ",");
    let file = format!("/etc/iscsi/nodes/{IQN}/{portal},1/default");
    let theirs = "node.startup = automatic\nnode.session.auth.username_in = theirs\n\
                  node.session.timeo.replacement_timeout = 9\n";
    rig.host.kernel().file(&file, theirs);
    let text = || rig.host.kernel().edit(|tree| tree.text(&file));
    let place = record::InPlace::Database("/etc/iscsi/nodes".into());
    let chap = credentials.session.as_ref();

    let mut written = Vec::new();
    for chap in [chap, None] {
        let settings = record::Settings { iface: "default", chap };
        record::put(&rig.host, &notes, target, &settings, &place).await.unwrap();
        written.push(text());
    }
    kept::restore(&rig.host, &notes).await.unwrap();

    for record in &written {
        assert!(record.contains("replacement_timeout = 9"), "{record}");
        assert!(!record.starts_with(record::MARK), "{record}");
    }
    assert!(written[0].contains("secretsecret12") && !written[1].contains("secretsecret12"));
    assert_eq!(text(), theirs.trim());
}
