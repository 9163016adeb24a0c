//! The memory report as text for people.

use std::fmt::{self, Display, Formatter};

use remat_types::ByteSize;

use super::{HolderBytes, MemoryReport, OpTime, Stats};

/// The number of holders and ops that are listed by name. The rest are summed up.
const SHOWN: usize = 8;

impl Display for MemoryReport {
    /// Lines for the budget and the peak, the holders of bytes at the peak, evictions and recomputation, followed
    /// plans, and spilling. The text ends without a line break.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let s = &self.stats;
        let budget = s.budget_bytes.map_or_else(|| "unlimited".to_owned(), |b| ByteSize(b).to_string());
        let (peak, reserved) = (ByteSize(s.peak_bytes), ByteSize(s.reserved_bytes));
        write!(f, "Memory report\n  budget {budget}, peak {peak}, reserved {reserved}")?;
        holders(f, "at the peak, by kind", &self.peak_by_kind, s.peak_bytes)?;
        holders(f, "at the peak, by op", &self.peak_by_op, s.peak_bytes)?;
        write!(f, "\n  evictions {} ({})", s.evictions, ByteSize(s.evicted_bytes as usize))?;
        match s.compactions {
            0 => {}
            1 => f.write_str(", 1 compaction")?,
            n => write!(f, ", {n} compactions")?,
        }
        let total = s.executed_ns + s.recomputed_ns;
        let share = if total == 0 { 0.0 } else { 100.0 * s.recomputed_ns as f64 / total as f64 };
        write!(f, "\n  recomputed {} ops of {}, {share:.1} % of the compute time", s.recomputed_ops, s.executed_ops)?;
        for op in self.recomputed.iter().take(SHOWN) {
            write!(f, "\n    {:24} {:>8} times {:>10.1} ms", op.op, op.count, ms(op.time_ns))?;
        }
        on_host(f, s, &self.on_host)?;
        for (what, used) in [("pinned host memory", s.pinned_host), ("the spill file", s.spill_file)] {
            if let Some(used) = used.filter(|used| used.peak_bytes > 0) {
                let budget =
                    used.budget_bytes.map_or_else(|| "unlimited".to_owned(), |b| ByteSize(b as usize).to_string());
                write!(f, "\n  {what}: budget {budget}, peak {}", ByteSize(used.peak_bytes as usize))?;
            }
        }
        if let Some(waits) = s.host_waits {
            write!(f, "\n  the host waited {waits} times for the device, beside values that were read")?;
        }
        foresight(f, s)?;
        spilled(f, s)
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn holders(f: &mut Formatter<'_>, title: &str, all: &[HolderBytes], peak: usize) -> fmt::Result {
    let line = |f: &mut Formatter<'_>, name: &str, bytes: usize| {
        let share = 100.0 * bytes as f64 / peak.max(1) as f64;
        write!(f, "\n    {name:24} {:>12} {share:>5.1} %", ByteSize(bytes))
    };
    write!(f, "\n  {title}:")?;
    let (shown, rest) = all.split_at(SHOWN.min(all.len()));
    shown.iter().try_for_each(|h| line(f, &h.name, h.bytes))?;
    match rest.iter().map(|h| h.bytes).sum() {
        0 => Ok(()),
        rest => line(f, "others", rest),
    }
}

/// The ops that ran on the host for want of a kernel, if there were any.
fn on_host(f: &mut Formatter<'_>, s: &Stats, ops: &[OpTime]) -> fmt::Result {
    if s.host_fallback_ops == 0 {
        return Ok(());
    }
    let bytes = ByteSize(s.host_fallback_bytes as usize);
    write!(f, "\n  {} launches without a kernel ran on the host, {bytes} copied", s.host_fallback_ops)?;
    ops.iter()
        .take(SHOWN)
        .try_for_each(|o| write!(f, "\n    {:24} {:>8} times {:>10.1} ms", o.op, o.count, ms(o.time_ns)))
}

/// How many steps ran as planned, if any was planned.
fn foresight(f: &mut Formatter<'_>, s: &Stats) -> fmt::Result {
    if s.steps_planned == 0 {
        return Ok(());
    }
    write!(
        f,
        "\n  foresight: {} plans in {:.0} ms, {} steps followed, {} abandoned, {} blocks misplaced",
        s.steps_planned,
        ms(s.planning_ns),
        s.steps_followed,
        s.steps_abandoned,
        s.misplaced
    )?;
    if s.steps_followed == 0 {
        return Ok(());
    }
    let (planned, took) = (ms(s.planned_step_ns), ms(s.followed_step_ns));
    write!(f, "\n    the ops of the last followed step took {took:.1} ms, {planned:.1} ms as planned")
}

/// The bytes that went to the spill file and came back, and whether the file is still in use.
fn spilled(f: &mut Formatter<'_>, s: &Stats) -> fmt::Result {
    if s.spilled_bytes > 0 {
        let (spilled, fetched) = (ByteSize(s.spilled_bytes as usize), ByteSize(s.fetched_bytes as usize));
        write!(f, "\n  spilled {spilled}, fetched {fetched}, waited {:.1} ms for that", ms(s.spill_wait_ns))?;
    }
    match &s.spill_failure {
        Some(why) => write!(f, "\n  spilling has ended, and spilled values are recomputed: {why}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_where_bytes_and_time_went() {
        let holder = |i: usize| HolderBytes { name: format!("op{i}"), bytes: 1024 };
        let stats = Stats {
            budget_bytes: Some(16 << 20),
            peak_bytes: 10 * 1024,
            executed_ops: 20,
            executed_ns: 3_000_000,
            recomputed_ops: 4,
            recomputed_ns: 1_000_000,
            compactions: 1,
            ..Stats::default()
        };
        let recomputed = vec![OpTime { op: "conv2d".into(), count: 4, time_ns: 1_000_000 }];
        let r = MemoryReport { stats, peak_by_op: (0..10).map(holder).collect(), recomputed, ..Default::default() };
        let text = r.to_string();
        for part in [
            "  budget 16.0 MiB, peak 10.0 KiB, reserved 0 B\n",
            "    op7                           1.0 KiB  10.0 %\n    others                        2.0 KiB  20.0 %\n",
            "  evictions 0 (0 B), 1 compaction\n",
            "  recomputed 4 ops of 20, 25.0 % of the compute time\n    conv2d                          4 times        1.0 ms",
        ] {
            assert!(text.contains(part), "{part:?}:\n{text}");
        }
        assert!(!text.contains("foresight") && !text.ends_with('\n'), "{text}");
    }
}
