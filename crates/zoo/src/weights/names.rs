//! A map from the names of a file to Remat's: a table of patterns, one in each line.

use std::collections::{BTreeMap, BTreeSet};

use remat_types::{Error, ErrorKind, Result};

/// Rules that give the names of another framework's file those of a module.
///
/// A rule is a line, `theirs -> ours`; the first that matches counts. In `theirs`, `{x}` stands for one or more characters but
/// dots, `{x*}` for any characters, `{x=1:a,2:b}` for `1` or `2`, which become `a` or `b`. In `ours`, `{x}` is the matched text,
/// `{x+1}` and `{x-1}` are numbers moved by one, and `{#x.y}` is the place of the pair among all pairs of the file in numerical
/// order. The last form numbers the blocks of all stages consecutively. `ours` is `-` for an entry that is not taken. After it
/// may follow `| transpose` for matrices the other way round, `| reshape` for the same numbers in another shape, and
/// `| part 1/3` for the second of three parts along axis 0. A line `prefix p` says that names may begin with `p`, which is left
/// out; `within p` that they do, and that no others are taken ([`NameMap::within`]). `#` begins a comment.
///
/// ```
/// use remat_zoo::NameMap;
/// # fn main() -> remat_types::Result<()> {
/// let names = NameMap::parse(
///     "layer{s}.{b}.conv{c=1:a,2:b}.{p} -> stages.{s-1}.{b}.{c}.{p}
///      fc.{p} -> head.{p}
///      {x*}.num_batches_tracked -> -",
/// )?;
/// assert_eq!(names.name("layer2.0.conv1.weight").as_deref(), Some("stages.1.0.a.weight"));
/// assert_eq!(names.name("bn.num_batches_tracked"), None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameMap {
    /// The prefix of the names to look at.
    within: String,
    prefixes: Vec<String>,
    rules: Vec<Rule>,
}

/// How a tensor of a file becomes a parameter, or one of its `parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub transposes: bool,
    pub reshapes: bool,
    pub part: usize,
    pub parts: usize,
}

/// The result of the rules for a name.
#[derive(Debug)]
pub(super) enum Found {
    Called(String, Change),
    Dropped,
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    theirs: Vec<Piece>,
    /// `None` for an entry that is not taken.
    ours: Option<Vec<Insert>>,
    change: Change,
}

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// Any characters; with dots, if so.
    Any(String, bool),
    /// One of these texts, and its replacement.
    OneOf(String, Vec<(String, String)>),
}

/// A part of a name to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Insert {
    Text(String),
    Value(String, i64),
    Rank(Vec<String>),
}

type Captured = BTreeMap<String, String>;

impl NameMap {
    /// The rules of a text. Errors: Value, with the line.
    pub fn parse(text: &str) -> Result<NameMap> {
        let mut map = NameMap::default();
        for (i, line) in text.lines().enumerate() {
            let line = if line.trim_start().starts_with('#') { "" } else { line.trim() };
            if line.is_empty() {
                continue;
            }
            let at = |e: Error| e.context(format_args!("line {} of a table of names", i + 1));
            match line.split_once(' ') {
                Some(("prefix", prefix)) => map.prefixes.push(prefix.trim().to_owned()),
                Some(("within", prefix)) => prefix.trim().clone_into(&mut map.within),
                _ => map.rules.push(Rule::parse(line).map_err(at)?),
            }
        }
        Ok(map)
    }

    /// The same rules for the part of a file whose names begin with `prefix`, which is left out; nothing else of it is taken.
    ///
    /// ```
    /// use remat_zoo::models::names_of;
    /// # fn main() -> remat_types::Result<()> {
    /// let names = names_of("torchvision/resnet")?.within("state_dict.");
    /// assert_eq!(names.name("state_dict.fc.bias").as_deref(), Some("head.bias"));
    /// assert_eq!(names.name("optimizer.state.0.exp_avg"), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn within(mut self, prefix: &str) -> NameMap {
        prefix.clone_into(&mut self.within);
        self
    }

    /// Remat's name for `theirs`, if a rule takes it. A rule that counts pairs sees only this name.
    pub fn name(&self, theirs: &str) -> Option<String> {
        match self.find([&theirs.to_owned()].into_iter()).ok()?.pop()? {
            Found::Called(name, _) => Some(name),
            Found::Dropped | Found::Nothing => None,
        }
    }

    /// The result of the rules for each name. Errors: Value for a number that is invalid or below 0.
    pub(super) fn find<'n>(&self, names: impl Iterator<Item = &'n String>) -> Result<Vec<Found>> {
        let inside = |name: &'n String| name.strip_prefix(self.within.as_str());
        let matched: Vec<Option<Option<(&Rule, Captured)>>> =
            names.map(|n| inside(n).map(|n| self.matching(n))).collect();
        let mut ranks: BTreeMap<&[String], BTreeSet<Vec<i64>>> = BTreeMap::new();
        for (rule, captured) in matched.iter().flatten().flatten() {
            for keys in rule.ranks() {
                ranks.entry(keys).or_default().insert(numbers(keys, captured)?);
            }
        }
        let said = |found: Option<Option<(&Rule, Captured)>>| {
            let Some(found) = found else { return Ok(Found::Dropped) };
            let Some((rule, captured)) = found else { return Ok(Found::Nothing) };
            let Some(ours) = &rule.ours else { return Ok(Found::Dropped) };
            let mut name = String::new();
            for insert in ours {
                match insert {
                    Insert::Text(t) => name.push_str(t),
                    Insert::Value(key, 0) => name.push_str(&captured[key]),
                    Insert::Value(key, by) => name.push_str(&moved(key, &captured, *by)?.to_string()),
                    Insert::Rank(keys) => {
                        let own = numbers(keys, &captured)?;
                        name.push_str(&ranks[keys.as_slice()].range(..own).count().to_string());
                    }
                }
            }
            Ok(Found::Called(name, rule.change))
        };
        matched.into_iter().map(said).collect()
    }

    fn matching(&self, name: &str) -> Option<(&Rule, Captured)> {
        let name = self.prefixes.iter().find_map(|p| name.strip_prefix(p.as_str())).unwrap_or(name);
        self.rules.iter().find_map(|rule| {
            let mut captured = Captured::new();
            fits(&rule.theirs, name, &mut captured).then_some((rule, captured))
        })
    }
}

fn moved(key: &str, captured: &Captured, by: i64) -> Result<i64> {
    let n: Option<i64> = captured[key].parse().ok();
    n.and_then(|n| n.checked_add(by)).filter(|n| *n >= 0).ok_or_else(|| {
        Error::new(ErrorKind::Value, format!("`{}`, which is {key} of a name, is no number to count by", captured[key]))
    })
}

fn numbers(keys: &[String], captured: &Captured) -> Result<Vec<i64>> {
    keys.iter().map(|k| moved(k, captured, 0)).collect()
}

/// True if `name` is of the pattern; then `captured` has what stood in its places.
fn fits(pattern: &[Piece], name: &str, captured: &mut Captured) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return name.is_empty() };
    match first {
        Piece::Text(text) => name.strip_prefix(text.as_str()).is_some_and(|tail| fits(rest, tail, captured)),
        Piece::OneOf(key, choices) => choices.iter().any(|(from, to)| {
            let tail = name.strip_prefix(from.as_str());
            tail.is_some_and(|tail| fits(rest, tail, captured)) && captured.insert(key.clone(), to.clone()).is_none()
        }),
        Piece::Any(key, has_dots) => {
            let end = if *has_dots { name.len() } else { name.find('.').unwrap_or(name.len()) };
            let least = usize::from(!*has_dots);
            let mut ends = (least..=end).rev().filter(|e| name.is_char_boundary(*e));
            match ends.find(|e| fits(rest, &name[*e..], captured)) {
                Some(e) => captured.insert(key.clone(), name[..e].to_owned()).is_none(),
                None => false,
            }
        }
    }
}

impl Rule {
    fn parse(line: &str) -> Result<Rule> {
        let (theirs, ours) = line.split_once("->").ok_or_else(|| bad("a rule is `theirs -> ours`".to_owned()))?;
        let mut parts = ours.split('|').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let mut change = Change { transposes: false, reshapes: false, part: 0, parts: 1 };
        for word in parts {
            match word {
                "transpose" => change.transposes = true,
                "reshape" => change.reshapes = true,
                _ => (change.part, change.parts) = part(word)?,
            }
        }
        let theirs = pieces(theirs.trim())?;
        let ours = if name == "-" { None } else { Some(inserts(name, &theirs)?) };
        Ok(Rule { theirs, ours, change })
    }

    fn ranks(&self) -> impl Iterator<Item = &[String]> {
        self.ours.iter().flatten().filter_map(|i| if let Insert::Rank(keys) = i { Some(keys.as_slice()) } else { None })
    }
}

/// `part 1/3`.
fn part(word: &str) -> Result<(usize, usize)> {
    let numbers = word.strip_prefix("part ").and_then(|w| w.trim().split_once('/'));
    let parsed = numbers.and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    parsed.filter(|(i, n)| i < n).ok_or_else(|| bad(format!("`{word}` is not `transpose`, `reshape` or `part I/N`")))
}

/// Texts and the insides of braces, in turn. Errors: Value for braces that do not close or open twice.
fn braced(text: &str) -> Result<Vec<(&str, Option<&str>)>> {
    let (mut all, mut rest) = (Vec::new(), text);
    while let Some((before, behind)) = rest.split_once('{') {
        let (inside, tail) = behind.split_once('}').ok_or_else(|| bad(format!("`{text}` does not close a brace")))?;
        if inside.contains('{') || before.contains('}') {
            return Err(bad(format!("`{text}` has a brace within braces")));
        }
        all.push((before, Some(inside)));
        rest = tail;
    }
    all.push((rest, None));
    Ok(all)
}

fn pieces(text: &str) -> Result<Vec<Piece>> {
    let (mut all, mut keys) = (Vec::new(), BTreeSet::new());
    for (before, inside) in braced(text)? {
        if !before.is_empty() {
            all.push(Piece::Text(before.to_owned()));
        }
        let Some(inside) = inside else { continue };
        let piece = match inside.split_once('=') {
            Some((key, choices)) => {
                let pair = |c: &str| {
                    let (from, to) = c.split_once(':').unwrap_or((c, c));
                    (from.trim().to_owned(), to.trim().to_owned())
                };
                Piece::OneOf(key.trim().to_owned(), choices.split(',').map(pair).collect())
            }
            None => match inside.strip_suffix('*') {
                Some(key) => Piece::Any(key.to_owned(), true),
                None => Piece::Any(inside.to_owned(), false),
            },
        };
        let (Piece::Any(key, _) | Piece::OneOf(key, _) | Piece::Text(key)) = &piece;
        if key.is_empty() || !keys.insert(key.clone()) {
            return Err(bad(format!("`{text}` has a place without a name of its own")));
        }
        all.push(piece);
    }
    Ok(all)
}

fn inserts(text: &str, theirs: &[Piece]) -> Result<Vec<Insert>> {
    let known = |key: &str| match theirs.iter().any(|p| matches!(p, Piece::Any(k, _) | Piece::OneOf(k, _) if k == key))
    {
        true => Ok(key.to_owned()),
        false => Err(bad(format!("`{text}` inserts `{key}`, which the name before it has not"))),
    };
    let mut all = Vec::new();
    for (before, inside) in braced(text)? {
        if !before.is_empty() {
            all.push(Insert::Text(before.to_owned()));
        }
        let Some(inside) = inside else { continue };
        if let Some(keys) = inside.strip_prefix('#') {
            all.push(Insert::Rank(keys.split('.').map(known).collect::<Result<_>>()?));
            continue;
        }
        let at = inside.find(['+', '-']).unwrap_or(inside.len());
        let by = match &inside[at..] {
            "" => 0,
            by => by.parse().map_err(|_| bad(format!("`{by}` in `{text}` is no number")))?,
        };
        all.push(Insert::Value(known(&inside[..at])?, by));
    }
    Ok(all)
}

fn bad(text: String) -> Error {
    Error::new(ErrorKind::Value, text)
}
