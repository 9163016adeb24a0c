//! `--memory-budget`.

use std::str::FromStr;

/// The budget that the user allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MemoryBudget {
    /// So many bytes.
    Bytes(usize),
    /// This share of the peak of the run without a budget.
    Share(f64),
    Unlimited,
}

/// Shown with every error, so that the next try is right.
const FORMS: &str =
    "give bytes (`64MiB`, `0.5GB`, `500000B`), a share of the peak without a budget (`50%`), or `unlimited`";

/// A smaller number without a unit is a mistake: somebody meant MiB, or percent.
const LEAST_WITHOUT_UNIT: f64 = 1e6;
/// The bytes that a process can address on present machines.
const MOST_BYTES: f64 = (1u64 << 47) as f64;
/// Shares outside of this are a mistake, too.
const SHARES: std::ops::RangeInclusive<f64> = 1e-6..=1e4;

const UNITS: [(&str, f64); 9] = [
    ("TiB", 1024.0 * 1024.0 * 1024.0 * 1024.0),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("KiB", 1024.0),
    ("TB", 1e12),
    ("GB", 1e9),
    ("MB", 1e6),
    ("kB", 1e3),
    ("B", 1.0),
];

impl std::fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemoryBudget::Bytes(bytes) => write!(f, "{bytes}B"),
            MemoryBudget::Share(share) => write!(f, "{}%", 100.0 * share),
            MemoryBudget::Unlimited => f.write_str("unlimited"),
        }
    }
}

impl FromStr for MemoryBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("unlimited") {
            return Ok(MemoryBudget::Unlimited);
        }
        let number = |digits: &str| {
            let v = digits.trim().parse::<f64>().ok().filter(|v| v.is_finite() && *v > 0.0);
            v.ok_or_else(|| format!("`{}` is not a number above 0; {FORMS}", digits.trim()))
        };
        if let Some(share) = text.strip_suffix('%') {
            let share = number(share)? / 100.0;
            if !SHARES.contains(&share) {
                return Err(format!("`{text}` is no share between 0.0001% and 1000000%; {FORMS}"));
            }
            return Ok(MemoryBudget::Share(share));
        }
        let lower = text.to_ascii_lowercase();
        let unit = UNITS.iter().find(|(u, _)| lower.ends_with(&u.to_ascii_lowercase()));
        let (digits, scale) = unit.map_or((text, 1.0), |(u, s)| (&text[..text.len() - u.len()], *s));
        let bytes = number(digits)? * scale;
        if unit.is_none() && bytes < LEAST_WITHOUT_UNIT {
            return Err(format!("`{text}` has no unit: write `{text}MiB`, `{text}%`, or `{text}B` for bytes; {FORMS}"));
        }
        if !(1.0..=MOST_BYTES).contains(&bytes) {
            return Err(format!("`{text}` is not a size that memory can have; {FORMS}"));
        }
        Ok(MemoryBudget::Bytes(bytes as usize))
    }
}

impl MemoryBudget {
    /// The budget in bytes, given the peak without one; `peak` runs only if it is needed.
    pub(crate) fn bytes<E>(self, peak: impl FnOnce() -> Result<usize, E>) -> Result<Option<usize>, E> {
        Ok(match self {
            MemoryBudget::Unlimited => None,
            MemoryBudget::Bytes(b) => Some(b),
            // at least a byte, which is refused with figures
            MemoryBudget::Share(s) => Some(((peak()? as f64 * s) as usize).max(1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let parse = |t: &str| t.parse::<MemoryBudget>().expect("valid");
        assert_eq!(parse("64MiB"), MemoryBudget::Bytes(64 << 20));
        assert_eq!(parse("0.5 gb"), MemoryBudget::Bytes(500_000_000));
        assert_eq!(parse("1048576"), MemoryBudget::Bytes(1 << 20));
        assert_eq!(parse("50%"), MemoryBudget::Share(0.5));
        assert_eq!(parse("Unlimited"), MemoryBudget::Unlimited);
    }

    #[test]
    fn wrong_values_say_what_is_right() {
        let shares = ["nan%", "1e300%", "1e-30%", "0%", "-5%"];
        for text in
            ["", "lots", "-1MiB", "0", "12XB", "1e40TB", "200TiB", "0.1B", "MiB", "5\u{b5}B"].iter().chain(&shares)
        {
            let e = text.parse::<MemoryBudget>().expect_err(text);
            assert!(e.contains("64MiB") && e.contains("unlimited"), "{text}: {e}");
        }
    }

    #[test]
    fn a_small_number_without_a_unit_is_taken_for_the_mistake_that_it_is() {
        for text in ["50", "512", "999999"] {
            let e = text.parse::<MemoryBudget>().expect_err(text);
            for form in ["MiB", "%", "B"] {
                assert!(e.contains(&format!("`{text}{form}`")), "{e}");
            }
        }
        assert_eq!("50B".parse(), Ok(MemoryBudget::Bytes(50)));
        assert_eq!("1000000".parse(), Ok(MemoryBudget::Bytes(1_000_000)));
    }
}
