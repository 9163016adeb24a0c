//! The size of the second cache: what a thread may keep at hand for all of a task.

use std::sync::OnceLock;

/// Where the processor does not say.
const COMMON_BYTES: usize = 512 << 10;
/// Sizes that kernels are cut for; what a virtual machine reports may be anything.
const BYTES: std::ops::RangeInclusive<usize> = (256 << 10)..=(2 << 20);

/// Bytes of a core's second-level cache, from 256 KiB to 2 MiB. A pure function of the machine.
pub(crate) fn l2_bytes() -> usize {
    static L2: OnceLock<usize> = OnceLock::new();
    *L2.get_or_init(|| reported().unwrap_or(COMMON_BYTES).clamp(*BYTES.start(), *BYTES.end()))
}

/// The cache size that the processor reports: Intel's leaf 4, and AMD's leaf 0x8000001D in the same form (Intel SDM,
/// volume 2A, CPUID; AMD64 Programmer's Manual, volume 3, appendix E). Miri knows no CPUID.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn reported() -> Option<usize> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    /// Caches that a leaf may list; the last has type 0.
    const MOST: u32 = 8;
    let leaf = |leaf: u32| {
        (0..MOST).map(move |i| __cpuid_count(leaf, i)).take_while(|c| c.eax & 0x1f != 0).find_map(|c| {
            let [kind, level] = [c.eax & 0x1f, c.eax >> 5 & 7];
            let [ways, partitions, line] = [c.ebx >> 22, c.ebx >> 12 & 0x3ff, c.ebx & 0xfff].map(|n| n as usize + 1);
            let bytes = ways * partitions * line * (c.ecx as usize + 1);
            // data, or all
            (level == 2 && matches!(kind, 1 | 3)).then_some(bytes)
        })
    };
    let has = |leaf: u32| __cpuid(leaf & 0x8000_0000).eax >= leaf;
    [0x8000_001d, 4].into_iter().filter(|l| has(*l)).find_map(leaf)
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn reported() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_size_is_what_the_system_reports() {
        let read = |name: &str| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/{name}"));
        let l2 = (0..8).find(|i| {
            let is =
                |file: &str, what: &[&str]| read(&format!("index{i}/{file}")).is_ok_and(|s| what.contains(&s.trim()));
            is("level", &["2"]) && is("type", &["Unified", "Data"])
        });
        // a system without this directory has nothing to compare with
        let Some(size) = l2.and_then(|i| read(&format!("index{i}/size")).ok()) else { return };
        let kib: usize = size.trim().trim_end_matches('K').parse().expect("a size in KiB");
        // the system asks the processor, too, if that tells
        assert_eq!(reported().unwrap_or(kib << 10), kib << 10);
        assert!(BYTES.contains(&l2_bytes()));
    }
}
