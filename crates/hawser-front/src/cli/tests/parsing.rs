//! What is understood, and what is refused with exit code 2 and a clear message.

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};

use super::fake::{Cli, parser};
use crate::cli::args::volume::VolumeCommand;
use crate::cli::generate::{CompletionsArgs, ManArgs, completions, man};
use crate::cli::{Command, Format, WaitFor};

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

fn refusal(line: &str) -> String {
    match parse(line) {
        Ok(_) => panic!("{line} was accepted"),
        Err(error) => {
            assert_eq!(error.exit_code(), 2, "{line}");
            error.to_string()
        }
    }
}

#[test]
fn the_parser_is_consistent() {
    parser().debug_assert();
}

/// clap takes the doc of a flattened struct for the command's own where it has the last word.
#[test]
fn shared_options_do_not_take_over_what_a_command_says_of_itself() {
    let about = |command: &clap::Command| command.get_about().unwrap().to_string();
    let program = parser();
    assert_eq!(about(&program), "Brings volumes to hosts");
    let volume = program.find_subcommand("volume").unwrap();
    assert!(about(volume.find_subcommand("create").unwrap()).starts_with("Make a volume, empty"));
    assert!(about(volume.find_subcommand("clone").unwrap()).starts_with("Make a volume as a copy"));
}

fn visit(command: &clap::Command, see: &mut impl FnMut(&clap::Command)) {
    see(command);
    command.get_subcommands().for_each(|sub| visit(sub, see));
}

#[test]
fn every_command_has_help_and_examples_that_parse() {
    let mut examples = 0;
    visit(&parser(), &mut |command| {
        if command.get_name() == "hawser" {
            return;
        }
        assert!(command.get_about().is_some(), "{} says nothing", command.get_name());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<_> = help.lines().filter(|line| line.starts_with("  hawser ")).collect();
        assert!(!lines.is_empty(), "{} has no example", command.get_name());
        for line in lines {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            examples += 1;
        }
    });
    assert!(examples > 40, "only {examples}");
}

#[test]
fn bad_values_are_refused_with_their_reason() {
    for (line, word) in [
        ("hawser volume create data --size -1", "is not a size"),
        ("hawser volume create data --size 1e30", "is not a size"),
        ("hawser volume create data --size 0", "larger than 0"),
        ("hawser volume create data --size 99999999PiB", "larger than any device"),
        ("hawser volume create data", "--size"),
        ("hawser volume create a/b --size 1G", "is not allowed"),
        ("hawser volume create .. --size 1G", "is not allowed"),
        ("hawser volume create vol-01k5zzzzzzzzzzzzzzzzzzzzzz --size 1G", "internal id"),
        ("hawser volume create data --size 1G --fs ntfs", "ext4, xfs or btrfs"),
        ("hawser volume create data --size 1G --fs ext4 --block", "cannot be used with"),
        ("hawser volume create data --from-volume a --from-snapshot b", "cannot be used with"),
        ("hawser volume create data --size 1G --label nope", "key=value"),
        ("hawser volume create data --size 1G --label !=x", "label key"),
        ("hawser volume create data --size 1G --sharing all", "many-readers"),
        ("hawser volume create data --size 1G --class UP", "class name"),
        ("hawser volume expand data -5", "is not a size"),
        ("hawser volume label data", "KEY"),
        ("hawser volume label data word", "key- to remove"),
        ("hawser snapshot group create g", "VOLUME"),
        ("hawser snapshot group create g a/b", "is not allowed"),
        ("hawser class show default --place host-a", "key=value"),
        ("hawser operation show 7", "operation id"),
        ("hawser volume list -o xml", "table, json, yaml"),
        ("hawser volume list --server ftp://x", "ftp://x"),
        ("hawser volume list --wait 1 --no-wait", "cannot be used with"),
        ("hawser volume list --wait soon", "is not a time"),
        ("hawser backup list", "unrecognized subcommand"),
    ] {
        let message = refusal(line);
        assert!(message.contains(word), "{line}: {message}");
    }
    let long = format!("hawser volume show {}", "x".repeat(300));
    assert!(refusal(&long).contains("longer than 128"));
    assert!(matches!(parse("hawser --help"), Err(e) if e.kind() == ErrorKind::DisplayHelp));
}

#[test]
fn shared_options_work_before_and_after_the_command() {
    for line in ["hawser -o json volume list", "hawser volume list -o json"] {
        assert_eq!(parse(line).unwrap().global.output, Format::Json, "{line}");
    }
    let waits = parse("hawser volume delete a --wait 2m").unwrap().global.wait_for();
    assert_eq!(waits, WaitFor::AtMost(std::time::Duration::from_secs(120)));
    assert_eq!(parse("hawser node list").unwrap().global.wait_for(), WaitFor::Done);
}

#[test]
fn the_mount_keeps_its_own_short_option_and_the_shared_long_one() {
    let cli = parse("hawser mount data /x -o noatime,nodev -o sync --output json").unwrap();
    let Command::Mount(args) = cli.command else { panic!("not a mount") };
    assert_eq!(args.flags, ["noatime", "nodev", "sync"]);
    assert_eq!(cli.global.output, Format::Json);
    let before = parse("hawser -o yaml mount data /x").unwrap();
    assert_eq!(before.global.output, Format::Yaml);
}

#[test]
fn labels_are_set_and_removed() {
    let cli = parse("hawser volume label data a=1 b- c=x-").unwrap();
    let Command::Volume(VolumeCommand::Label(args)) = cli.command else { panic!("not a label") };
    let set = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
    assert_eq!(args.changes, [set("a", Some("1")), set("b", None), set("c", Some("x-"))]);
}

#[test]
fn completions_and_manual_pages_come_from_the_parser() {
    for shell in clap_complete::Shell::value_variants() {
        let mut script = Vec::new();
        completions(parser(), &CompletionsArgs { shell: *shell }, &mut script);
        assert!(String::from_utf8(script).unwrap().contains("snapshot"), "{shell}");
    }
    let page = |words: &[&str]| {
        let command = words.iter().map(ToString::to_string).collect();
        let mut text = Vec::new();
        let made = man(parser(), &ManArgs { command, dir: None }, &mut text);
        made.map(|()| String::from_utf8(text).unwrap())
    };
    assert!(page(&["volume", "create"]).unwrap().contains("from\\-snapshot"));
    assert!(page(&[]).unwrap().contains("hawser"));
    assert_eq!(page(&["nope"]).unwrap_err().kind(), std::io::ErrorKind::NotFound);

    let folder = tempfile::tempdir().unwrap();
    let args = ManArgs { command: vec![], dir: Some(folder.path().to_owned()) };
    man(parser(), &args, &mut Vec::new()).unwrap();
    assert!(folder.path().join("hawser.1").exists());
    assert!(folder.path().join("hawser-volume-create.1").exists());
}
