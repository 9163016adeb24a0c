//! Bytes for people.

/// `bytes` in the largest binary unit that leaves at least 1: `51.2 MiB`.
pub(crate) fn show(bytes: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_read_well() {
        assert_eq!(super::show(1023), "1023 B");
        assert_eq!(super::show(53_687_091), "51.2 MiB");
        assert_eq!(super::show(1 << 30), "1.0 GiB");
    }
}
