//! Scratch.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
use hawser_live::lab::guest::{cmd, modprobe, scratch};
fn sh(line: &str) {
    let done = cmd("sh").args(["-c", line]).run();
    println!("$ {line}\n[{}] {}{}", done.code(), done.stdout, done.stderr);
}
#[test]
fn explore() {
    modprobe(&["drbd"]);
    let (a, b) = (scratch(1), scratch(2));
    let res = |me: &str, port: u16, peer: &str, pport: u16, minor: u8, disk: &str| {
        format!(r#"
resource {me} {{
  net {{ protocol C; cram-hmac-alg sha1; shared-secret "hunter2"; }}
  on lab {{ device /dev/drbd{minor}; disk {disk}; meta-disk internal; address 127.0.1.{a}:{port}; }}
  on peer {{ device /dev/drbd{minor}; disk /dev/null; meta-disk internal; address 127.0.1.{b}:{pport}; }}
}}
"#, a = if me == "r0" {1} else {2}, b = if me == "r0" {2} else {1}).replace("PEER", peer)
    };
    std::fs::write("/tmp/r0.res", res("r0", 7789, "peer", 7790, 0, a.to_str().unwrap())).unwrap();
    std::fs::write("/tmp/r1.res", res("r1", 7790, "peer", 7789, 1, b.to_str().unwrap())).unwrap();
    sh("cat /proc/drbd; drbdadm --version; hostname; uname -n; cat /tmp/r0.res");
    sh("drbdadm -c /tmp/r0.res adjust r0");
    sh("cat /proc/drbd");
    sh("drbdadm -c /tmp/r0.res create-md --force r0; drbdadm -c /tmp/r1.res create-md --force r1");
    sh("drbdadm -c /tmp/r0.res down r0; drbdadm -c /tmp/r0.res adjust r0");
    sh("cat /proc/drbd");
    sh(
        "drbdsetup status; echo; drbdsetup status --json; drbdsetup status r0 --json; drbdsetup events2 --now",
    );
    sh(
        "drbdsetup status nosuch; drbdsetup status nosuch --json; drbdsetup status r0 --verbose --statistics",
    );
    sh("drbdadm -c /tmp/r1.res adjust r1; sleep 3; cat /proc/drbd; drbdsetup status");
    sh("drbdadm -c /tmp/r0.res primary r0");
    sh(
        "drbdadm -c /tmp/r0.res new-current-uuid --clear-bitmap r0/0; sleep 1; cat /proc/drbd; drbdsetup events2 --now",
    );
    sh("drbdadm -c /tmp/r0.res primary r0; cat /proc/drbd");
    sh("drbdadm -c /tmp/r1.res primary r1; cat /proc/drbd");
    sh(
        "ls -la /sys/block/drbd0/ /sys/kernel/debug/drbd /sys/kernel/debug/drbd/resources /sys/kernel/debug/drbd/resources/r0/volumes/0; cat /sys/block/drbd0/size /sys/block/drbd0/ro",
    );
    sh(
        "exec 5</dev/drbd0; drbdadm -c /tmp/r0.res secondary r0; drbdsetup down r0; echo down $?; cat /proc/drbd",
    );
    sh("drbdadm -c /tmp/r0.res adjust r0; drbdsetup show r0; drbdsetup show");
    sh("drbdadm -c /tmp/r0.res secondary r0; dd if=/dev/drbd0 of=/dev/null count=1");
    sh("drbdadm -c /tmp/r0.res resize r0");
    sh(
        "drbdadm -c /tmp/r0.res adjust nosuch; drbdadm -c /tmp/none adjust r0; echo 'resource r0 { bad' > /tmp/bad.res; drbdadm -c /tmp/bad.res adjust r0",
    );
    sh("sed s/lab/other/ /tmp/r0.res > /tmp/o.res;  drbdadm -c /tmp/o.res adjust r0");
    sh(
        "drbdadm -c /tmp/r0.res down r0; drbdadm -c /tmp/r0.res down r0; drbdsetup down r0;drbdadm -c /tmp/r1.res down r1; cat /proc/drbd; drbdsetup status; ls /sys/block",
    );
    // split brain
    sh(
        "drbdadm -c /tmp/r0.res up r0; drbdadm -c /tmp/r0.res primary --force r0; echo a | dd of=/dev/drbd0 bs=512 conv=sync,fsync oflag=direct; drbdadm -c /tmp/r0.res secondary r0; drbdadm -c /tmp/r0.res down r0; drbdadm -c /tmp/r1.res up r1; drbdadm -c /tmp/r1.res primary --force r1; echo b | dd of=/dev/drbd1 bs=512 conv=sync,fsync oflag=direct;drbdadm -c /tmp/r1.res secondary r1; drbdadm -c /tmp/r0.res up r0; sleep 4; cat /proc/drbd; drbdsetup status; drbdsetup events2 --now; dmesg | tail -20",
    );
    sh(
        "drbdadm -c /tmp/r0.res primary r0; cat /proc/drbd; drbdadm -c /tmp/r0.res adjust r0; cat /proc/drbd; sleep 3; cat /proc/drbd",
    );
    sh(
        "drbdadm -c /tmp/r0.res down r0; sed s/hunter2/other/ /tmp/r0.res > /tmp/w.res;  drbdadm -c /tmp/w.res adjust r0; sleep 4;cat /proc/drbd; drbdsetup events2 --now; dmesg | tail -8",
    );
    sh("strace -f -e trace=execve drbdadm -c /tmp/r0.res adjust r0 2>&1 | grep exec");
    sh("drbdadm -c /tmp/r0.res down r0;drbdadm -c /tmp/r1.res down r1");
}
