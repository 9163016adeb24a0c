//! Named state: read it to the host, and replace all of it or nothing.

use std::collections::BTreeMap;
use std::fmt;

use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_tensor::comm::{Call, Communicator};
use remat_types::{Error, ErrorKind, HostTensor, Result};

use crate::Parameter;
use crate::division::Taker;

/// The entries that a load took, and those that a non-strict load left alone. Its text gives the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Names that both have, whose values were taken.
    pub matched: Vec<String>,
    /// Names of the module that the loaded state lacks.
    pub missing: Vec<String>,
    /// Names of the loaded state that the module lacks.
    pub unexpected: Vec<String>,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [matched, missing, unexpected] = [&self.matched, &self.missing, &self.unexpected].map(Vec::len);
        write!(f, "{matched} matched, {missing} missing, {unexpected} unexpected")
    }
}

/// New values that are on the device and fit, next to the parameters that will take them.
pub(crate) struct Staged {
    values: Vec<(Parameter, Tensor)>,
    report: LoadReport,
}

impl Staged {
    /// Lets the parameters take their new values.
    pub(crate) fn apply(self) -> Result<LoadReport> {
        for (p, value) in &self.values {
            p.set(value)?;
        }
        Ok(self.report)
    }
}

/// The entries by name. Errors: Value if two have one name.
pub(crate) fn by_name(entries: &[(String, Parameter)]) -> Result<BTreeMap<&str, &Parameter>> {
    let mut all = BTreeMap::new();
    for (name, p) in entries {
        if all.insert(name.as_str(), p).is_some() {
            return Err(Error::new(ErrorKind::Value, format!("two parameters are called `{name}`")));
        }
    }
    Ok(all)
}

/// Waits for these and for every device that they live on. Errors: what made one fail, with its name; what failed there and
/// no call has told yet.
pub(crate) fn sync(entries: &[(String, Parameter)]) -> Result<()> {
    let mut devices: Vec<&Device> = Vec::new();
    for (name, p) in entries {
        p.device().channel().wait(p.get()?.handle()).map_err(|e| e.context(name))?;
        if !devices.contains(&p.device()) {
            devices.push(p.device());
        }
    }
    devices.into_iter().try_for_each(|d| d.channel().sync())
}

/// The ranks among which some of these are divided; none if all are whole. Errors: Value for several groups.
pub(crate) fn group_of<'p>(entries: impl Iterator<Item = &'p Parameter>) -> Result<Option<Communicator>> {
    let mut groups = entries.filter_map(|p| p.division()).map(|d| &d.group);
    let Some(first) = groups.next() else { return Ok(None) };
    match groups.find(|g| *g != first) {
        None => Ok(Some(first.clone())),
        Some(other) => {
            let text = format!("state that is divided among two groups of ranks: {first:?}, and another {other:?}");
            Err(Error::new(ErrorKind::Value, text))
        }
    }
}

/// Hands each value to `take` as a whole, in the order of names and one at a time. If entries are divided, all ranks call this
/// function, and all get the same outcome. `ready` is this rank's outcome so far. An entry that is not divided is read when
/// `take` is called.
///
/// Errors: those of `ready` and `take`, and what made a value fail; of these on other ranks Peer; Value for several groups.
pub(crate) fn each_whole(
    entries: &BTreeMap<&str, &Parameter>,
    taker: Taker,
    ready: Result<()>,
    mut take: impl FnMut(&str, HostTensor) -> Result<()>,
) -> Result<()> {
    let Some(group) = group_of(entries.values().copied())? else {
        ready?;
        return entries.iter().try_for_each(|(name, p)| take(name, p.to_host().map_err(|e| e.context(name))?));
    };
    // the ranks' calls below are this thread's, so that none of the devices may still make one
    let mut so_far = ready.and_then(|()| entries.values().try_for_each(|p| p.device().channel().sync()));
    for (name, p) in entries {
        let value = |()| p.to_host().map_err(|e| e.context(name));
        so_far = match p.division() {
            Some(d) => d.gather(name, so_far.and_then(value), taker)?.map_or(Ok(()), |whole| take(name, whole)),
            None if taker.is_rank_of(&group) => so_far.and_then(value).and_then(|whole| take(name, whole)),
            None => so_far,
        };
    }
    group.agree(&Call::named("the end of a state"), so_far)
}

/// The values on the host, as wholes. If entries are divided, all ranks call this function. Errors: Value if two have one name;
/// the failure of a value.
pub(crate) fn read(entries: &[(String, Parameter)]) -> Result<BTreeMap<String, HostTensor>> {
    let mut all = BTreeMap::new();
    each_whole(&by_name(entries)?, Taker::Every, Ok(()), |name, value| {
        all.insert(name.to_owned(), value);
        Ok(())
    })?;
    Ok(all)
}

/// Checks `state` against the entries and brings it to the device. Errors: Value, naming everything that does not fit, also
/// for a loading that is not strict and finds no name at all that both have; Budget if the old and the new values do not fit together.
pub(crate) fn stage(
    entries: &[(String, Parameter)],
    state: &BTreeMap<String, HostTensor>,
    strict: bool,
) -> Result<Staged> {
    let own = by_name(entries)?;
    let missing = own.keys().filter(|n| !state.contains_key(**n)).map(|n| (*n).to_owned()).collect();
    let (matched, unexpected) = state.keys().cloned().partition(|n| own.contains_key(n.as_str()));
    let report = LoadReport { matched, missing, unexpected };
    let mut wrong = Vec::new();
    let mut pairs = Vec::new();
    for (&name, p) in &own {
        match state.get(name) {
            Some(t) if t.dtype() == p.dtype() && t.shape() == p.whole_shape() => pairs.push((*p, t)),
            Some(t) => {
                wrong.push(format!("{name} is {} {}, not {} {}", t.dtype(), t.shape(), p.dtype(), p.whole_shape()));
            }
            None => {}
        }
    }
    if !strict && report.matched.is_empty() && !(own.is_empty() && state.is_empty()) {
        return Err(nothing_fits(&report));
    }
    let mut faults = Vec::new();
    if strict && !report.missing.is_empty() {
        faults.push(format!("missing: {}", report.missing.join(", ")));
    }
    if strict && !report.unexpected.is_empty() {
        faults.push(format!("unexpected: {}", report.unexpected.join(", ")));
    }
    if !wrong.is_empty() {
        faults.push(format!("of another dtype or shape: {}", wrong.join(", ")));
    }
    if !faults.is_empty() {
        let text = format!("the state does not fit the module; {}", faults.join("; "));
        return Err(Error::new(ErrorKind::Value, text));
    }
    let put = |(p, t): (&Parameter, &HostTensor)| {
        let part = p.division().map(|d| d.part_of_host(t)).transpose()?;
        let handle = p.device().channel().put_as(part.as_ref().unwrap_or(t), p.role().kind())?;
        Ok((p.clone(), Tensor::from_handle(handle)))
    };
    let values: Vec<(Parameter, Tensor)> = pairs.into_iter().map(put).collect::<Result<_>>()?;
    for (p, value) in &values {
        p.device().channel().wait(value.handle()).map_err(|e| e.context("while loading state"))?;
    }
    Ok(Staged { values, report })
}

/// Names of each side in an error.
const SHOWN: usize = 4;

/// The error of a state that has no name of the module.
fn nothing_fits(report: &LoadReport) -> Error {
    let some = |names: &[String]| match names {
        [] => "nothing".to_owned(),
        all => {
            let more = if all.len() > SHOWN { ", .." } else { "" };
            format!("`{}`{more}", all[..all.len().min(SHOWN)].join("`, `"))
        }
    };
    let (own, given) = (some(&report.missing), some(&report.unexpected));
    let text = format!("no name of the state is one of the module: {report}; the module has {own}, the state {given}");
    Error::new(ErrorKind::Value, text)
}
