/// A polynomial in the symbols of a graph, linear in each, with whole coefficients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polynomial {
    /// By the set of symbols that are multiplied, as bits.
    coefficients: Vec<i64>,
}

impl Polynomial {
    /// The one with these values where each symbol is `low`, or one more where the index has its bit. `None` where numbers
    /// leave the range.
    pub(super) fn through(values: &[i64], low: &[usize]) -> Option<Polynomial> {
        // in x = low + d, with d of 0 or 1, the coefficients of d are differences
        let mut c = values.to_vec();
        for bit in (0..low.len()).map(|i| 1 << i) {
            for s in (0..c.len()).filter(|s| s & bit != 0) {
                c[s] = c[s].checked_sub(c[s ^ bit])?;
            }
        }
        // and d = x - low
        for (i, low) in low.iter().enumerate() {
            let (bit, low) = (1 << i, i64::try_from(*low).ok()?);
            for s in (0..c.len()).filter(|s| s & bit != 0) {
                let moved = c[s].checked_mul(low)?;
                c[s ^ bit] = c[s ^ bit].checked_sub(moved)?;
            }
        }
        Some(Polynomial { coefficients: c })
    }

    /// Its value; `None` beyond the range of numbers.
    pub fn at(&self, sizes: &[usize]) -> Option<i64> {
        self.coefficients.iter().enumerate().try_fold(0i64, |sum, (s, c)| {
            let chosen = sizes.iter().enumerate().filter(|(i, _)| s >> i & 1 == 1);
            let term = chosen.map(|(_, n)| *n).try_fold(*c, |t, n| t.checked_mul(i64::try_from(n).ok()?))?;
            sum.checked_add(term)
        })
    }

    /// The number, if no symbol is in it.
    pub fn constant(&self) -> Option<i64> {
        self.coefficients[1..].iter().all(|c| *c == 0).then_some(self.coefficients[0])
    }

    /// The symbol, if it is one and nothing else.
    pub fn symbol(&self) -> Option<usize> {
        let mut terms = self.coefficients.iter().enumerate().filter(|(_, c)| **c != 0);
        match (terms.next(), terms.next()) {
            (Some((set, 1)), None) if set.is_power_of_two() => Some(set.trailing_zeros() as usize),
            _ => None,
        }
    }

    /// `2 b t + t + 1`, with these names of the symbols.
    pub fn text(&self, names: &[&str]) -> String {
        let mut s = String::new();
        for (set, c) in self.coefficients.iter().enumerate().rev().filter(|(_, c)| **c != 0) {
            let symbols: Vec<&str> =
                names.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, n)| *n).collect();
            let sign = match (s.is_empty(), *c < 0) {
                (true, true) => "-",
                (true, false) => "",
                (false, true) => " - ",
                (false, false) => " + ",
            };
            s.push_str(sign);
            if c.unsigned_abs() != 1 || symbols.is_empty() {
                s.push_str(&c.unsigned_abs().to_string());
                s.push_str(if symbols.is_empty() { "" } else { " " });
            }
            s.push_str(&symbols.join(" "));
        }
        if s.is_empty() { "0".to_owned() } else { s }
    }
}
