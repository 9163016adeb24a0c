//! Words, numbers and signs of PTX text (PTX ISA 8.7, section 4).

use super::{Parsed, Refusal};

/// One piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// An identifier, a register, an opcode with its dots, or a directive.
    Word(&'a str),
    /// A number without its sign.
    Number(&'a str),
    /// A quoted text.
    Text,
    Sign(char),
}

/// Tokens with their lines. Comments are left out.
pub(super) fn tokens(text: &str) -> Parsed<Vec<(Token<'_>, u32)>> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut out = Vec::new();
    while let Some(token) = lexer.next()? {
        out.push((token, lexer.line));
    }
    Ok(out)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

fn is_word_start(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

fn is_word(c: u8) -> bool {
    is_word_start(c) || c.is_ascii_digit()
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_blanks(&mut self) -> Parsed<()> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r', _) => self.at += 1,
                (b'/', b'/') => {
                    while self.at < self.text.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                (b'/', b'*') => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Parsed<()> {
        let from = self.line;
        let rest = &self.text[self.at + 2..];
        let Some(end) = rest.find("*/") else { return Err(Refusal::new(from, "a comment does not end")) };
        self.line += rest[..end].matches('\n').count() as u32;
        self.at += 2 + end + 2;
        Ok(())
    }

    fn next(&mut self) -> Parsed<Option<Token<'a>>> {
        self.skip_blanks()?;
        let from = self.at;
        let c = self.peek(0);
        if from >= self.text.len() {
            return Ok(None);
        }
        if is_word_start(c) {
            // `.L1::no_allocate` is one word, `label:` is two pieces
            while is_word(self.peek(0)) || (self.peek(0) == b':' && self.peek(1) == b':') {
                self.at += if self.peek(0) == b':' { 2 } else { 1 };
            }
            return Ok(Some(Token::Word(&self.text[from..self.at])));
        }
        if c.is_ascii_digit() {
            while self.peek(0).is_ascii_alphanumeric() {
                self.at += 1;
            }
            return Ok(Some(Token::Number(&self.text[from..self.at])));
        }
        if c == b'"' {
            let rest = &self.text[from + 1..];
            let end = rest.find(['"', '\n']).filter(|&e| rest.as_bytes()[e] == b'"');
            let Some(end) = end else { return Err(Refusal::new(self.line, "a quoted text does not end")) };
            self.at = from + end + 2;
            return Ok(Some(Token::Text));
        }
        if b",;:[]{}()<>=+-!@|".contains(&c) {
            self.at += 1;
            return Ok(Some(Token::Sign(char::from(c))));
        }
        let c = self.text[from..].chars().next().unwrap_or(' ');
        Err(Refusal::new(self.line, format!("the character {c:?} is unknown")))
    }
}

/// The value of an integer (PTX ISA 8.7, section 4.5.1): decimal, hexadecimal, octal or binary, with an optional `U`.
pub(super) fn integer(digits: &str) -> Option<u64> {
    let digits = digits.strip_suffix(['U', 'u']).unwrap_or(digits);
    let lower = digits.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(binary) = lower.strip_prefix("0b") {
        return u64::from_str_radix(binary, 2).ok();
    }
    match lower.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => lower.parse().ok(),
    }
}

/// The bits of a float in hexadecimal (PTX ISA 8.7, section 4.5.2): `0f` or `0d`, and the digits.
pub(super) fn float_bits(digits: &str) -> Option<(bool, u64)> {
    let (is_double, hex) = match digits.get(..2)? {
        "0f" | "0F" => (false, &digits[2..]),
        "0d" | "0D" => (true, &digits[2..]),
        _ => return None,
    };
    let is_whole = hex.len() == if is_double { 16 } else { 8 };
    is_whole.then(|| u64::from_str_radix(hex, 16).ok()).flatten().map(|bits| (is_double, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_radix() {
        assert_eq!(integer("010"), Some(8));
        assert_eq!(integer("0x1FU"), Some(31));
        assert_eq!(integer("0b101"), Some(5));
        assert_eq!(integer("0"), Some(0));
        assert_eq!(integer("18446744073709551615"), Some(u64::MAX));
        assert_eq!(integer("18446744073709551616"), None);
        assert_eq!(float_bits("0f3F800000"), Some((false, 0x3f80_0000)));
        assert_eq!(float_bits("0f3F8"), None);
        assert_eq!(float_bits("0d3FF0000000000000"), Some((true, 0x3ff0_0000_0000_0000)));
    }

    #[test]
    fn lines_count_through_comments() {
        let all = tokens("a // b\n/* \n\n */ .L1::x:").unwrap();
        assert_eq!(all, [(Token::Word("a"), 1), (Token::Word(".L1::x"), 4), (Token::Sign(':'), 4)]);
        assert!(tokens("/* x").is_err() && tokens("\"x\n\"").is_err() && tokens("é").is_err());
    }
}
