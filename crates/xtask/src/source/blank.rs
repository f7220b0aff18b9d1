//! Blanks out what is not code.

/// The same text with comments and the content of literals replaced by spaces. Newlines stay, so
/// line numbers and byte offsets of code are those of the original.
pub(crate) fn blank(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = hidden_end(bytes, at);
        match end {
            Some(end) => {
                let hidden = &bytes[at..end];
                out.extend(hidden.iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
                at = end;
            }
            None => {
                // Code is ASCII for our purposes; other bytes keep their place as spaces.
                out.push(if bytes[at].is_ascii() { bytes[at] } else { b' ' });
                at += 1;
            }
        }
    }
    String::from_utf8(out).expect("only ASCII was written")
}

/// Where the comment or literal that starts at `at` ends; `None` when none starts there.
fn hidden_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => Some(at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(at + block_comment(rest)),
        [b'"', ..] => Some(at + quoted(rest, b'"')),
        [b'\'', b'\\', ..] => Some(at + quoted(rest, b'\'')),
        [b'\'', ..] => char_literal(rest).map(|length| at + length),
        [b'r' | b'b' | b'c', ..] if !continues_word(bytes, at) => {
            prefixed(rest).map(|length| at + length)
        }
        _ => None,
    }
}

fn continues_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `'x'`, but not the lifetime `'x`: the quote must close after one character.
fn char_literal(rest: &[u8]) -> Option<usize> {
    let width = match rest.get(1)? {
        0x00..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// Literals with a prefix: `r"…"`, `r#"…"#`, `b"…"`, `br"…"`, `c"…"`, `b'…'`.
fn prefixed(rest: &[u8]) -> Option<usize> {
    let letters = match rest {
        [b'b' | b'c', b'r', ..] => 2,
        _ => 1,
    };
    let raw = rest[letters - 1] == b'r';
    if !raw {
        return match rest.get(letters)? {
            b'"' => Some(letters + quoted(&rest[letters..], b'"')),
            b'\'' if rest[0] == b'b' => Some(letters + quoted(&rest[letters..], b'\'')),
            _ => None,
        };
    }
    let hashes = rest[letters..].iter().take_while(|b| **b == b'#').count();
    if rest.get(letters + hashes) != Some(&b'"') {
        return None;
    }
    let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = letters + hashes + 1;
    let end = rest[body..].windows(closing.len()).position(|window| window == closing);
    Some(end.map_or(rest.len(), |end| body + end + closing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_vanish_and_lines_stay() {
        let text =
            "let a = \"}\\\"{\"; // {\nlet b = 'x'; /* { /* } */\n{ */ let c: &'static str;\n";

        let code = blank(text);

        assert_eq!(code.len(), text.len());
        assert_eq!(code.matches('\n').count(), 3);
        assert!(!code.contains('{') && !code.contains('}'), "{code}");
        assert!(code.contains("let c: &'static str;"));
    }

    #[test]
    fn raw_and_byte_literals_vanish() {
        for text in
            [r##"r#"{"}"#"##, r#"br"{""#, r#"b"{""#, "b'{'", r#"c"{""#, r"'\''", "'{'", "'ü'"]
        {
            let code = blank(&format!("x({text});"));
            assert_eq!(code.trim_matches(['x', '(', ')', ';']).trim(), "", "{text}");
        }
    }

    #[test]
    fn words_that_end_in_a_prefix_letter_are_code() {
        assert_eq!(blank("for<'a> bar\"x\""), "for<'a> bar   ");
        assert_eq!(blank("r#type"), "r#type");
    }

    #[test]
    fn an_unfinished_literal_ends_with_the_file() {
        for text in ["\"abc", "r#\"abc\"", "/* abc", "'\\"] {
            assert_eq!(blank(text).trim(), "", "{text}");
        }
    }
}
