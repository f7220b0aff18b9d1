//! Programs of a fake host.

use hawser_core::port::host::{Arg, Tool, ToolOutput};

/// A run of a program, as the program sees it.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// Its arguments, the hidden ones too.
    pub args: Vec<String>,
    /// What it reads.
    pub stdin: Option<String>,
}

impl ToolCall {
    pub(super) fn of(tool: &Tool) -> Self {
        let text = |arg: &Arg| match arg {
            Arg::Plain(text) => text.to_string_lossy().into_owned(),
            Arg::Hidden(secret) => secret.expose().to_owned(),
        };
        Self {
            args: tool.args.iter().map(text).collect(),
            stdin: tool.stdin.as_ref().map(|secret| secret.expose().to_owned()),
        }
    }

    /// True when this is among the arguments.
    pub fn has(&self, arg: &str) -> bool {
        self.args.iter().any(|its| its == arg)
    }

    /// What follows one of these options: `-p X`, `--portal X` or `--portal=X`.
    pub fn value(&self, options: &[&str]) -> Option<&str> {
        let joined = |arg: &str| {
            options.iter().find_map(|option| {
                let length = arg.strip_prefix(option)?.strip_prefix('=').map(str::len)?;
                Some(arg.len() - length)
            })
        };
        self.args.iter().enumerate().find_map(|(at, arg)| {
            if options.contains(&arg.as_str()) {
                return self.args.get(at + 1).map(String::as_str);
            }
            joined(arg).map(|from| &arg[from..])
        })
    }
}

/// How a program ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code.
    pub code: i32,
    /// What it says.
    pub stdout: String,
    /// What it complains of.
    pub stderr: String,
}

impl Ran {
    /// It works, and says this.
    pub fn ok(stdout: impl Into<String>) -> Self {
        Self { code: 0, stdout: stdout.into(), stderr: String::new() }
    }

    /// It fails, and complains of this.
    pub fn failed(code: i32, stderr: impl Into<String>) -> Self {
        Self { code, stdout: String::new(), stderr: stderr.into() }
    }

    pub(super) fn into_output(self, program: &str) -> ToolOutput {
        let Self { code, stdout, stderr } = self;
        ToolOutput { program: program.into(), code: Some(code), stdout, stderr }
    }
}
