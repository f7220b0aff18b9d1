//! The shape of blanked source: where tests are, where functions begin and end.

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// The line of `fn`, from 1.
    pub(crate) line: usize,
    /// Lines from `fn` to the closing brace.
    pub(crate) length: usize,
}

/// The line of a byte offset, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Blanked code without its `#[cfg(test)]` items: what is left of `code`, and how many lines that
/// is. An item is a module, a function or a `use`; `mod tests;` counts as one line less.
pub(crate) fn without_tests(code: &str) -> (String, usize) {
    let mut kept = String::with_capacity(code.len());
    let mut lines = code.lines().count();
    let mut rest = code;
    while let Some(start) = rest.find("#[cfg(test)]") {
        let end = start + item_end(&rest[start..]);
        kept.push_str(&rest[..start]);
        lines -= rest[start..end].matches('\n').count() + 1;
        // Keeps line numbers of what follows.
        kept.extend(rest[start..end].chars().filter(|c| *c == '\n'));
        rest = &rest[end..];
    }
    kept.push_str(rest);
    (kept, lines)
}

/// Where the item that starts here ends: after its first `;` outside brackets, or its braces, or,
/// for a field, its `,`; at the latest where the item around it ends.
fn item_end(code: &str) -> usize {
    let field = is_field(code);
    let mut depth = 0usize;
    let mut last = 0u8;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'<' if field => depth += 1,
            b'}' | b')' | b']' if depth == 0 => return code[..at].trim_end().len(),
            b'>' if field && last != b'-' && last != b'=' => depth = depth.saturating_sub(1),
            b'}' | b')' | b']' => {
                depth -= 1;
                if depth == 0 && byte == b'}' && !field {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            b',' if depth == 0 && field => return at + 1,
            _ => {}
        }
        last = byte;
    }
    code.len()
}

/// True when a field of a struct starts here, `name: …`, after its attributes and visibility.
fn is_field(code: &str) -> bool {
    let mut rest = code.trim_start();
    while let Some(attribute) = rest.strip_prefix("#[") {
        rest = attribute.split_once(']').map_or("", |(_, rest)| rest).trim_start();
    }
    if let Some(visible) = rest.strip_prefix("pub") {
        let visible = visible.trim_start();
        rest = match visible.strip_prefix('(') {
            Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest),
            None => visible,
        };
    }
    let rest = rest.trim_start();
    let after = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let named = after.len() < rest.len();
    let after = after.trim_start();
    named && after.starts_with(':') && !after.starts_with("::")
}

/// Every function with a body in blanked code, nested ones too.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        let after = &code[at + 3..];
        let name: String =
            after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        // `fn (u8) -> u8` is a type, not a function.
        if name.is_empty() {
            continue;
        }
        if let Some(end) = body_end(after) {
            let length = after[..end].matches('\n').count() + 1;
            found.push(Function { name, line: line_of(code, at), length });
        }
    }
    found
}

/// Where the body of the function whose name starts here ends; `None` for a declaration.
fn body_end(code: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(at + item_end(&code[at..])),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
fn one() {
    two()
}

trait T { fn declared(&self, a: [u8; 2]); }

#[cfg(test)]
mod tests {
    fn three() { }
}

impl X {
    fn long(
        f: fn (u8) -> u8,
    ) -> [u8; 3] {
        if x { y }
    }
}
";

    #[test]
    fn tests_are_cut_and_line_numbers_stay() {
        let (kept, lines) = without_tests(CODE);

        assert_eq!(lines, 14);
        assert!(!kept.contains("three"));
        assert_eq!(line_of(&kept, kept.find("long").unwrap()), 13);
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_is_one_line_less() {
        assert_eq!(without_tests("mod a;\n#[cfg(test)]\nmod tests;\n").1, 1);
    }

    #[test]
    fn a_test_only_field_is_cut_and_nothing_behind_it() {
        let code = "struct A {\n    a: u8,\n    #[cfg(test)]\n    pub(super) b: Map<u8, u8>,\n    c: u8,\n}\n\
                    fn new() {\n    A {\n        a,\n        #[cfg(test)]\n        b: Map::new()\n    }\n}\n";
        let (kept, lines) = without_tests(code);

        assert_eq!(lines, 9);
        assert!(kept.contains("c: u8,") && !kept.contains("b: "), "{kept}");
        assert_eq!(functions(&kept)[0].length, 7);
    }

    #[test]
    fn functions_have_a_name_a_place_and_a_length() {
        let found = functions(&without_tests(CODE).0);

        let long = Function { name: "long".into(), line: 13, length: 5 };
        assert_eq!(found, [Function { name: "one".into(), line: 1, length: 3 }, long]);
    }
}
