//! The command line of a guest.

use std::path::Path;

use super::image::Parts;
use crate::lab::suites::Suite;

/// What a guest's terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Console {
    /// A file; the guest runs the job.
    File,
    /// The terminal of who started the lab; the guest runs a shell.
    Terminal,
}

/// The arguments of QEMU for guest number `guest` of a suite. Files of the run are named relative to
/// its folder, in which QEMU is started: names of sockets must be short.
pub(super) fn args(parts: &Parts, suite: &Suite, guest: u8, console: Console) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    // No acceleration: what works here works in any virtual machine, and is not a matter of luck.
    add(&["-accel", "tcg,thread=multi", "-M", "q35,usb=off,hpet=off", "-cpu", "max"]);
    add(&["-smp", &suite.cpus.to_string(), "-m", &format!("{}M", suite.memory_mib)]);
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-kernel", &text(&parts.kernel.join("vmlinuz")), "-initrd", "initrd.img"]);
    // On a busy machine the emulated timer may be late for the kernel's check of it, which then
    // gives up.
    let shell = if console == Console::Terminal { " lab.shell=1" } else { "" };
    add(&[
        "-append",
        &format!(
            "console=ttyS0 quiet panic=-1 no_timer_check nowatchdog mitigations=off net.ifnames=0 \
             lab.guest={guest} lab.guests={}{shell} {}",
            suite.guests, suite.kernel_args
        ),
    ]);

    for (serial, file, how) in disks(parts, suite, guest) {
        let drive = format!("if=none,id={serial},file={file},format=raw,cache=unsafe,{how}");
        add(&["-drive", &drive]);
        add(&["-device", &format!("virtio-blk-pci,drive={serial},serial={serial}")]);
    }
    // A card that leads nowhere: protocols below IP want an Ethernet device.
    add(&["-netdev", "user,id=out,restrict=on"]);
    add(&["-device", "virtio-net-pci,netdev=out,romfile="]);
    if suite.guests > 1 {
        let (wire, card) = pair(guest);
        add(&["-netdev", &wire, "-device", &card]);
    }
    add(&["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
    match console {
        Console::File => {
            for port in [Port::Out, Port::Control] {
                let (id, path) = (port.name(), socket(port, guest));
                add(&["-chardev", &format!("socket,id={id},path={path},server=off")]);
                add(&["-device", &format!("virtserialport,chardev={id},name=lab.{id}")]);
            }
            add(&["-serial", &format!("file:{}", console_file(guest))]);
        }
        Console::Terminal => {
            add(&["-chardev", "stdio,id=terminal,signal=off", "-serial", "chardev:terminal"]);
        }
    }
    args
}

/// The disks of a guest: serial number, file, and how it is opened. The root is written to a file
/// without a name that QEMU makes; the image stays as it is.
fn disks(parts: &Parts, suite: &Suite, guest: u8) -> Vec<(String, String, &'static str)> {
    let mut disks = vec![
        ("root".to_owned(), text(&parts.root.join("root.img")), "snapshot=on"),
        ("modules".to_owned(), text(&parts.kernel.join("modules.img")), "readonly=on"),
        ("job".to_owned(), "job.img".to_owned(), "readonly=on"),
    ];
    for number in 1..=suite.scratch.count {
        disks.push((format!("scratch{number}"), scratch(guest, number), "discard=unmap"));
    }
    disks
}

/// The wire to the other guest, and the card at this end.
fn pair(guest: u8) -> (String, String) {
    let other = if guest == 1 { 2 } else { 1 };
    let wire = format!(
        "dgram,id=pair,local.type=unix,local.path=net{guest},\
         remote.type=unix,remote.path=net{other}"
    );
    (wire, format!("virtio-net-pci,netdev=pair,romfile=,mac=52:54:00:99:00:{guest:02x}"))
}

/// A serial port between the guest and the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    /// What the tests say.
    Out,
    /// `ready`, `exit CODE`; answered by `off`.
    Control,
}

impl Port {
    fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::Control => "control",
        }
    }
}

/// The file name of a port's socket.
pub(super) fn socket(port: Port, guest: u8) -> String {
    format!("{}{guest}", port.name())
}

/// The file name of a guest's console.
pub(super) fn console_file(guest: u8) -> String {
    format!("console{guest}")
}

/// The file name of a guest's scratch disk.
pub(super) fn scratch(guest: u8, number: u8) -> String {
    format!("scratch{guest}-{number}.img")
}

/// A comma separates the options of QEMU, and is doubled inside of one.
fn text(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::suites::{Set, minutes};

    fn line(suite: &Suite, guest: u8, console: Console) -> String {
        let parts = Parts { root: "/c/root-1".into(), kernel: "/c/kernel,1".into() };
        args(&parts, suite, guest, console).join(" ")
    }

    #[test]
    fn no_guest_has_a_way_out() {
        let suite = Suite::new("vm_a", Set::Core, minutes(1));
        let line = line(&suite, 1, Console::File);
        assert_eq!(line.matches("-netdev").count(), 1);
        assert!(line.contains("-netdev user,id=out,restrict=on "), "{line}");
        assert!(line.contains("root.img,format=raw,cache=unsafe,snapshot=on"), "{line}");
        assert!(line.contains("/c/kernel,,1/vmlinuz"), "{line}");
    }

    #[test]
    fn two_guests_are_joined_and_each_has_its_own_disks() {
        let suite = Suite::new("vm_a", Set::Full, minutes(1)).guests(2).scratch(2, 64);
        let (one, two) = (line(&suite, 1, Console::File), line(&suite, 2, Console::File));
        assert!(one.contains("local.path=net1,remote.type=unix,remote.path=net2"), "{one}");
        assert!(two.contains("local.path=net2,remote.type=unix,remote.path=net1"), "{two}");
        assert!(one.contains("scratch1-2.img") && two.contains("scratch2-2.img"));
        assert!(two.contains("lab.guest=2 lab.guests=2"), "{two}");
    }
}
