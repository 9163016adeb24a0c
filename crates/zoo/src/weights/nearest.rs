//! The name that was perhaps meant.

/// Compared with a name, at most: a file that fits in nothing has thousands of either.
const COMPARED: usize = 2000;

/// `name`, and which of `all` is nearest, if one is near.
pub(super) fn told(name: &str, all: &[&str]) -> String {
    hinted(name.to_owned(), name, all)
}

/// `text`, and which of `all` is nearest to `name`, if one is near.
pub(super) fn hinted(text: String, name: &str, all: &[&str]) -> String {
    let near = all.iter().take(COMPARED).map(|other| (distance(name, other), *other)).min();
    match near {
        Some((edits, other)) if edits > 0 && 2 * edits <= name.len().max(other.len()) => {
            format!("{text} (nearest: {other})")
        }
        _ => text,
    }
}

/// Bytes to insert, delete or replace (Levenshtein, 1966).
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        assert_eq!((distance("kitten", "sitting"), distance("", "ab"), distance("ab", "ab")), (3, 2, 0));
        assert_eq!(told("stem.weigth", &["head.bias", "stem.weight"]), "stem.weigth (nearest: stem.weight)");
        assert_eq!(told("a", &["completely.different"]), "a");
    }
}
