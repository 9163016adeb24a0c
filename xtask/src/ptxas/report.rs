//! The text of `ptxas -v` as figures, and their table.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The family of functions that several kernels call and that no family has for itself.
const SHARED: &str = "shared functions";

/// Figures of one kernel, or of a function that is not inlined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    /// `None` for a function, which has those of its callers.
    registers: Option<u32>,
    shared: u32,
    /// Bytes of a thread's own memory, for arrays and for what is spilled.
    stack: u32,
    spill_stores: u32,
    spill_loads: u32,
}

/// Figures by the name of the kernel or function.
type Kernels = BTreeMap<String, Figures>;

/// The figures of all kernels on some architectures.
pub(super) struct Report {
    architectures: Vec<&'static str>,
    kernels: Vec<Kernels>,
}

/// The family of a kernel: its name without the hash. Of a function in a kernel's namespace it is that of the kernel.
fn family(name: &str) -> &str {
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let without_hash = |name| match str::rsplit_once(name, '_') {
        Some((family, hash)) if is_hash(hash) => Some(family),
        _ => None,
    };
    // `_ZN27norm_6391df4024eb7b34_parts10scaled_row..`
    let outer = name.strip_prefix("_ZN").map(|n| n.trim_start_matches(|c: char| c.is_ascii_digit()));
    let kernel = outer.and_then(|n| n.split_once("_parts")).map_or(name, |n| n.0);
    without_hash(kernel).unwrap_or(SHARED)
}

/// The number that stands before a text in a line, as in `8 bytes stack frame`.
fn before(line: &str, what: &str) -> Option<u32> {
    line.split_once(what)?.0.split_whitespace().next_back()?.parse().ok()
}

/// The figures of a text of the assembler's. Errors: a line that is not understood.
fn figures(text: &str) -> Result<Kernels, String> {
    let (mut kernels, mut entry, mut function) = (Kernels::new(), String::new(), String::new());
    for line in text.lines() {
        let unclear = || format!("ptxas says `{line}`");
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entry = rest.split('\'').next().ok_or_else(unclear)?.to_owned();
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            function = name.trim().to_owned();
        } else if line.contains("bytes stack frame") {
            let number = |what| before(line, what).ok_or_else(unclear);
            let [stack, spill_stores, spill_loads] =
                [number(" bytes stack frame")?, number(" bytes spill stores")?, number(" bytes spill loads")?];
            kernels.entry(function.clone()).or_default().raise(&Figures {
                stack,
                spill_stores,
                spill_loads,
                ..Figures::default()
            });
        } else if line.contains(" registers") {
            let registers = Some(before(line, " registers").ok_or_else(unclear)?);
            let shared = before(line, " bytes smem").unwrap_or(0);
            kernels.entry(entry.clone()).or_default().raise(&Figures { registers, shared, ..Figures::default() });
        }
    }
    Ok(kernels)
}

/// Figures of a family on one architecture.
#[derive(Default)]
struct Summary {
    registers: Vec<u32>,
    shared: u32,
    stack: u32,
    /// Kernels and functions that spill, and the most bytes that one stores or loads.
    spilling: usize,
    spilled: u32,
}

impl Summary {
    fn add(&mut self, f: &Figures) {
        self.registers.extend(f.registers);
        self.shared = self.shared.max(f.shared);
        self.stack = self.stack.max(f.stack);
        self.spilling += usize::from(f.spills());
        self.spilled = self.spilled.max(f.spill_stores).max(f.spill_loads);
    }

    /// Least, median and most registers, where there are kernels.
    fn range(&self) -> Option<[u32; 3]> {
        let mut all = self.registers.clone();
        all.sort_unstable();
        Some([*all.first()?, all[all.len() / 2], *all.last()?])
    }
}

impl Figures {
    /// Takes the larger ones: a function is compiled anew for each kernel that calls it.
    fn raise(&mut self, other: &Figures) {
        self.registers = self.registers.max(other.registers);
        self.shared = self.shared.max(other.shared);
        self.stack = self.stack.max(other.stack);
        self.spill_stores = self.spill_stores.max(other.spill_stores);
        self.spill_loads = self.spill_loads.max(other.spill_loads);
    }

    fn spills(&self) -> bool {
        self.spill_stores != 0 || self.spill_loads != 0
    }
}

impl Report {
    /// Without kernels yet.
    pub(super) fn new(architectures: impl IntoIterator<Item = &'static str>) -> Report {
        let architectures: Vec<_> = architectures.into_iter().collect();
        Report { kernels: vec![Kernels::new(); architectures.len()], architectures }
    }

    /// Adds what the assembler said for an architecture. Errors: a line that is not understood, and a text without kernels.
    pub(super) fn add(&mut self, architecture: usize, text: &str) -> Result<(), String> {
        let kernels = figures(text)?;
        if kernels.is_empty() {
            return Err(format!("ptxas names no kernel: {text}"));
        }
        for (name, f) in kernels {
            self.kernels[architecture].entry(name).or_default().raise(&f);
        }
        Ok(())
    }

    /// A line for each kernel or function that spills.
    pub(super) fn spilled(&self) -> Vec<String> {
        let all = self.architectures.iter().zip(&self.kernels).flat_map(|(a, k)| k.iter().map(move |(n, f)| (a, n, f)));
        all.filter(|(.., f)| f.spills())
            .map(|(a, name, f)| format!("{name} on {a}: {} bytes stored, {} loaded", f.spill_stores, f.spill_loads))
            .collect()
    }

    /// By family, and then by architecture.
    fn summaries(&self) -> BTreeMap<&str, Vec<Summary>> {
        let mut all: BTreeMap<&str, Vec<Summary>> = BTreeMap::new();
        for (architecture, kernels) in self.kernels.iter().enumerate() {
            for (name, f) in kernels {
                let row = all.entry(family(name)).or_default();
                row.resize_with(self.architectures.len(), Summary::default);
                row[architecture].add(f);
            }
        }
        all
    }

    /// The table as Markdown.
    pub(super) fn table(&self) -> String {
        let registers: String = self.architectures.iter().map(|a| format!(" {a} |")).collect();
        let rule = "--:|".repeat(self.architectures.len() + 4);
        let mut text = format!("| family | kernels |{registers} shared | stack | spilled |\n|---|{rule}\n");
        for (family, row) in self.summaries() {
            let kernels = row.iter().map(|s| s.registers.len()).max().unwrap_or(0);
            let range = |s: &Summary| s.range().map_or("-".to_owned(), |[a, b, c]| format!("{a} / {b} / {c}"));
            let registers: String = row.iter().map(|s| format!(" {} |", range(s))).collect();
            let [shared, stack] = [|s: &Summary| s.shared.to_string(), |s: &Summary| s.stack.to_string()]
                .map(|of| together(row.iter().map(of)));
            let spilled = together(row.iter().map(|s| match s.spilling {
                0 => "0".to_owned(),
                n => format!("{} ({n})", s.spilled),
            }));
            text += &format!("| `{family}` | {kernels} |{registers} {shared} | {stack} | {spilled} |\n");
        }
        text
    }

    /// The table for programs.
    pub(super) fn json(&self) -> String {
        let of = |s: &Summary| {
            json!({
                "kernels": s.registers.len(),
                "registers": s.range(),
                "shared_bytes": s.shared,
                "stack_bytes": s.stack,
                "spilling": s.spilling,
                "most_spilled_bytes": s.spilled,
            })
        };
        let rows = self.summaries().into_iter().map(|(family, row)| {
            let by: serde_json::Map<String, Value> =
                self.architectures.iter().zip(&row).map(|(a, s)| ((*a).to_owned(), of(s))).collect();
            (family.to_owned(), Value::Object(by))
        });
        format!("{:#}\n", Value::Object(rows.collect()))
    }
}

/// One figure where all are equal, and else all.
fn together(figures: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = figures.collect();
    if all.windows(2).all(|w| w[0] == w[1]) {
        all.truncate(1);
    }
    all.join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ptxas info    : 1704 bytes gmem
ptxas info    : Compiling entry function 'norm_6391df4024eb7b34' for 'sm_80'
ptxas info    : Function properties for norm_6391df4024eb7b34
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 56 registers, used 1 barriers, 40 bytes cumulative stack size, 2176 bytes smem, 512 bytes cmem[0]
ptxas info    : Compile time = 20.275 ms
ptxas info    : Function properties for _ZN27norm_6391df4024eb7b34_parts10scaled_rowILi16EEvv
    0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for _Z6refusePyyx
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'norm_0000000000000001' for 'sm_80'
ptxas info    : Function properties for norm_0000000000000001
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers, 512 bytes cmem[0]
";

    #[test]
    fn figures_are_those_that_the_assembler_says() {
        let mut report = Report::new(["sm_80", "sm_90"]);
        report.add(0, TEXT).unwrap();
        report.add(1, &TEXT.replace("4 bytes spill stores, 8", "0 bytes spill stores, 0")).unwrap();
        assert!(report.add(0, "ptxas info    : 1 bytes gmem").unwrap_err().contains("no kernel"));
        let table = report.table();
        let row = "| `norm` | 2 | 16 / 56 / 56 | 16 / 56 / 56 | 2176 | 40 | 8 (1) / 0 |\n";
        assert!(table.contains(row) && table.contains("| `shared functions` | 0 | - | - | 0 | 0 | 0 |"), "{table}");
        let spilled = report.spilled();
        assert!(spilled.len() == 1 && spilled[0].ends_with("on sm_80: 4 bytes stored, 8 loaded"), "{spilled:?}");
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["norm"]["sm_80"]["registers"], json!([16, 56, 56]));
        assert_eq!(json["norm"]["sm_90"]["spilling"], 0);
    }

    #[test]
    fn a_line_in_another_form_is_an_error() {
        let e = figures("    many bytes stack frame, 0 bytes spill stores").unwrap_err();
        assert!(e.contains("many bytes"), "{e}");
    }
}
