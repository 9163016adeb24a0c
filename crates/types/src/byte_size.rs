//! Bytes for people.

use std::fmt;

/// A number of bytes that is shown in the largest binary unit that leaves at least 1: `51.2 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub usize);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let (mut value, mut unit) = (self.0 as f64, 0);
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        match unit {
            0 => f.pad(&format!("{} B", self.0)),
            _ => f.pad(&format!("{value:.1} {}", UNITS[unit])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(ByteSize(1023).to_string(), "1023 B");
        assert_eq!(ByteSize(53_687_091).to_string(), "51.2 MiB");
        assert_eq!(format!("{:>9}", ByteSize(1 << 30)), "  1.0 GiB");
    }
}
