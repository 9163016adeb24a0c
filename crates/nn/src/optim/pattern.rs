//! Parameters sorted into groups by what they are called.

use crate::Parameter;

/// Parameters with their names.
type Named = Vec<(String, Parameter)>;

/// The parameters whose names match each pattern, and those that match none: one more list than there are patterns. The
/// first pattern that matches counts. In a pattern `*` is any text, dots included, and `?` any character: `*.bias`,
/// `block.?.norm*`.
///
/// ```
/// # use remat_nn::{InitCx, Linear, Module, group_by_name};
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let net = Linear::new(&mut InitCx::new(&device, 1), 2, 3)?;
/// let groups = group_by_name(net.named_parameters(), &["*bias"]);
/// assert_eq!((groups[0][0].0.as_str(), groups[1][0].0.as_str()), ("bias", "weight"));
/// # Ok::<(), remat_types::Error>(())
/// ```
pub fn group_by_name(parameters: Named, patterns: &[&str]) -> Vec<Named> {
    let mut groups: Vec<Named> = vec![Named::new(); patterns.len() + 1];
    for (name, p) in parameters {
        let found = patterns.iter().position(|pattern| matches(pattern, &name));
        groups[found.unwrap_or(patterns.len())].push((name, p));
    }
    groups
}

/// The parameters that weight decay should act on and those that it should not: vectors and numbers, such as biases and the
/// scales of normalisation.
pub fn split_decay(parameters: Named) -> (Named, Named) {
    parameters.into_iter().partition(|(_, p)| p.whole_shape().rank() > 1)
}

/// Whether the whole of `name` is of the pattern.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // the last star, and the end of the text that it stands for
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, end)) => {
                    star = Some((at, end + 1));
                    (p, n) = (at + 1, end + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks_match() {
        let yes =
            [("*", ""), ("", ""), ("*.bias", "a.b.bias"), ("a?c", "abc"), ("*a*b", "xaab"), ("**", "x"), ("é?", "éa")];
        let no = [("", "a"), ("*.bias", "bias"), ("a?c", "ac"), ("*a*b", "xba"), ("abc", "abcd"), ("?", "")];
        assert!(yes.iter().all(|(p, n)| matches(p, n)));
        assert!(!no.iter().any(|(p, n)| matches(p, n)));
    }
}
