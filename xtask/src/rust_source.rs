//! Rust text without its comments and strings: a scanner, not a parser.
//!
//! `Source::code` has the length and the lines of the raw text. Every comment, string and character literal in it is
//! blanked by spaces, so an offset means the same place in both. Plain search finds words, braces and attributes in it.
//! Where a parser would do better (a brace inside a generic argument, items made by macros), the scanner gives at most
//! a wrong length, and never crashes.

use std::ops::Range;

/// A Rust file's text, raw and masked.
pub(crate) struct Source {
    pub(crate) raw: String,
    pub(crate) code: String,
    tests: Vec<Range<usize>>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Offset of its `fn`.
    pub(crate) offset: usize,
    /// Line of its `fn`, from 1.
    pub(crate) line: usize,
    /// Lines from `fn` to the closing brace, both counted.
    pub(crate) lines: usize,
}

impl Source {
    pub(crate) fn new(raw: String) -> Self {
        let code = mask(&raw);
        let tests = test_items(&code);
        Self { raw, code, tests }
    }

    /// True inside an item under `#[test]` or `#[cfg(test)]`.
    pub(crate) fn is_test_at(&self, offset: usize) -> bool {
        self.tests.iter().any(|r| r.contains(&offset))
    }

    /// Line of an offset, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        line_of(&self.raw, offset)
    }

    /// Every function that has a body, nested ones included.
    pub(crate) fn functions(&self) -> Vec<Function> {
        find_word(&self.code, "fn").filter_map(|offset| self.function_at(offset)).collect()
    }

    fn function_at(&self, offset: usize) -> Option<Function> {
        let rest = self.code[offset + 2..].trim_start();
        // `fn(..)` is a type and `fn $name` belongs to a macro
        let name: String = rest.chars().take_while(|&c| is_word(c)).collect();
        if name.is_empty() {
            return None;
        }
        let open = item_open(&self.code, offset).filter(|&i| self.code.as_bytes()[i] == b'{')?;
        let line = self.line(offset);
        let lines = self.line(closing(&self.code, open) - 1) - line + 1;
        Some(Function { name, offset, line, lines })
    }
}

/// Line of an offset, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|&&b| b == b'\n').count() + 1
}

/// Offsets at which `word` stands alone, with no letter, digit or underscore next to it.
pub(crate) fn find_word<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let offsets = text.match_indices(word).map(|(i, _)| i);
    offsets.filter(move |&i| {
        let before = text[..i].chars().next_back();
        let after = text[i + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The end of the group that opens at `open`, one past its closing bracket. The text's end if the group never closes.
pub(crate) fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (i, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return i + 1;
        }
    }
    code.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The `{` or `;` that ends the head of an item starting at `start`, skipping groups and constant generic arguments.
fn item_open(code: &str, start: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut i = start;
    while i < bytes.len() {
        match bytes[i] {
            b'(' | b'[' => i = closing(code, i) - 1,
            b'{' if code[start..i].trim_end().ends_with('<') => i = closing(code, i) - 1,
            b'{' | b';' => return Some(i),
            b')' | b']' | b'}' => return None,
            _ => {}
        }
        i += 1;
    }
    None
}

/// Blanks comments, strings and character literals.
fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut i = 0;
    while i < bytes.len() {
        match literal_end(bytes, i) {
            Some(end) => {
                for byte in &mut out[i..end] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
                i = end;
            }
            None => i += 1,
        }
    }
    String::from_utf8(out).expect("whole characters were blanked")
}

/// The end of the comment, string or character that starts at `i`, if one does.
fn literal_end(bytes: &[u8], i: usize) -> Option<usize> {
    let rest = &bytes[i..];
    match rest[0] {
        b'/' if rest.starts_with(b"//") => Some(i + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len())),
        b'/' if rest.starts_with(b"/*") => Some(i + block_comment_len(rest)),
        b'"' => Some(i + quoted_len(rest)),
        b'\'' => char_len(rest).map(|n| i + n),
        b'r' | b'b' | b'c' if i == 0 || !is_word(char::from(bytes[i - 1])) => raw_string_len(rest).map(|n| i + n),
        _ => None,
    }
}

fn block_comment_len(rest: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut i = 0;
    while i < rest.len() {
        if rest[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if rest[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    rest.len()
}

fn quoted_len(rest: &[u8]) -> usize {
    let quote = rest[0];
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            b'\\' => i += 2,
            b if b == quote => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; `None` for a lifetime.
fn char_len(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted_len(rest));
    }
    let first = *rest.get(1)?;
    let width = match first {
        0..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// The length of `r".."`, `r#".."#` and their `b` and `c` forms. `None` for a name that only starts like one.
fn raw_string_len(rest: &[u8]) -> Option<usize> {
    let prefix = if rest[0] == b'r' { 1 } else { 2 };
    if rest.get(prefix - 1) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    let start = prefix + hashes;
    if rest.get(start) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let body = &rest[start + 1..];
    let len = body.windows(end.len()).position(|w| w == end).map_or(body.len(), |at| at + end.len());
    Some(start + 1 + len)
}

/// The ranges of items under a test attribute, from the attribute to the item's end.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices('#') {
        let inner = code[at + 1..].starts_with('!');
        let open = at + 1 + usize::from(inner);
        if !code[open..].starts_with('[') {
            continue;
        }
        let end = closing(code, open);
        if !is_test_attribute(&code[open + 1..end.saturating_sub(1).max(open + 1)]) {
            continue;
        }
        if inner {
            found.push(0..code.len());
        } else {
            found.push(at..item_end(code, end));
        }
    }
    found
}

/// `test`, `cfg(test)`, `cfg(all(test, ..))`; not `cfg(not(test))` and not `cfg_attr(test, ..)`.
fn is_test_attribute(attribute: &str) -> bool {
    let text: String = attribute.chars().filter(|c| !c.is_whitespace()).collect();
    text == "test" || (text.starts_with("cfg(") && !text.contains("not(test") && find_word(&text, "test").count() > 0)
}

/// The end of the item, field or statement whose attributes end at `start`.
fn item_end(code: &str, start: usize) -> usize {
    let mut at = start;
    loop {
        at += code[at..].len() - code[at..].trim_start().len();
        if !code[at..].starts_with("#[") {
            break;
        }
        at = closing(code, at + 1);
    }
    match item_open(code, at) {
        Some(open) if code.as_bytes()[open] == b'{' => closing(code, open),
        Some(semicolon) => semicolon + 1,
        // a field, a variant or a last expression ends where its line ends
        None => at + code[at..].find('\n').unwrap_or(code.len() - at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        mask(text).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_strings_vanish_and_lines_stay() {
        let text =
            "a /* x /* y */ z */ b // c\n\"d\\\"}\" e r#\"\"f\"# g br\"h\" b'}' '{' '\\'' '\\u{1F600}' '\u{e9}' i";
        assert_eq!(words(text), "a b e g b i");
        assert_eq!(mask(text).len(), text.len());
        assert_eq!(line_of(&mask("\"\n\n\"x"), 4), 3);
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        assert_eq!(words("fn f<'a>(x: &'a str) { r#type }"), "fn f<'a>(x: &'a str) { r#type }");
    }

    #[test]
    fn functions_have_names_and_lengths() {
        let source =
            Source::new("fn a() {\n \"}\";\n}\ntrait T { fn b(); fn c(x: [u8; 2]) {} }\ntype F = fn(u8);\n".into());
        let found: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("a".into(), 1, 3), ("c".into(), 4, 1)]);
    }

    #[test]
    fn test_items_are_known() {
        let text = "fn a() {}\n#[cfg(test)]\nmod t { fn b() {} }\n#[test]\n#[should_panic]\nfn c() {}\nfn d() {}\n\
                    #[cfg(not(test))]\nfn e() {}\n#[cfg(all(test, unix))]\nfn f() {}\n#[cfg_attr(test, x)]\nfn g() {}\n";
        let source = Source::new(text.into());
        let tests = source.functions().into_iter().filter(|f| source.is_test_at(f.offset)).map(|f| f.name);
        assert_eq!(tests.collect::<String>(), "bcf");
    }

    #[test]
    fn an_inner_attribute_makes_the_file_a_test() {
        assert!(Source::new("#![cfg(test)]\nfn a() {}".into()).is_test_at(15));
    }

    #[test]
    fn unclosed_text_does_not_crash() {
        for text in ["fn a() {", "\"", "/* x", "r#\"", "'", "#[", "#[cfg(test)", "#[test]", "b", "'\\", "}"] {
            let _ = Source::new(text.into()).functions();
        }
    }
}
