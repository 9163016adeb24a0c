//! Tests of planting, on a cargo project of one function.

use super::*;
use crate::faults::table::Verdict;
use crate::testing::Scratch;

const MANIFEST: &str = "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
const CODE: &str = "\
pub fn twice(x: i32) -> i32 {
    x + x
}
pub fn unwatched() -> i32 {
    7
}
#[cfg(test)]
mod tests {
    #[test]
    fn twice_two_is_four() {
        assert_eq!(super::twice(2), 4);
    }
    #[test]
    fn always_fails() {
        panic!();
    }
}
";

fn tiny(faults: &str) -> Scratch {
    Scratch::new(&[("Cargo.toml", MANIFEST), ("src/lib.rs", CODE), ("xtask/faults/all.toml", faults)])
}

fn fault(name: &str, find: &str, replace: &str, test: &str) -> String {
    format!(
        "[[fault]]\nname = \"{name}\"\nkind = \"k\"\nfile = \"src/lib.rs\"\nfind = \"{find}\"\n\
         replace = \"{replace}\"\ntest = \"{test}\"\n"
    )
}

fn options(args: &[&str]) -> Result<Options, String> {
    parse(&args.iter().map(|a| a.to_string()).collect::<Vec<_>>())
}

fn verdicts(faults: &str, timeout: &str) -> Vec<Verdict> {
    let repo = tiny(faults);
    let faults = spec::load(&repo, Path::new(FOLDER)).unwrap();
    let build = tempfile::tempdir().unwrap();
    let rows = plant_all(&repo, &faults, &options(&["--timeout", timeout]).unwrap(), build.path()).unwrap();
    let kept = std::fs::read_to_string(build.path().join("tree/src/lib.rs")).unwrap();
    assert_eq!(kept, CODE, "the copy is restored");
    assert_eq!(repo.read(Path::new("src/lib.rs")).unwrap(), CODE, "the checkout is never touched");
    rows.into_iter().map(|r| r.verdict).collect()
}

#[test]
fn only_a_failing_test_counts_as_caught() {
    let test = "-p tiny --lib twice";
    let faults = [
        fault("caught", "x + x", "x - x", test),
        fault("survivor", "    7", "    8", test),
        fault("type error", "x + x", "true", test),
        fault("stale", "x * x", "x", test),
        fault("ambiguous", "x", "y", test),
        fault("crash", "x + x", "std::process::abort()", test),
        fault("caught again", "x + x", "x + 1", test),
    ];
    let got = verdicts(&faults.concat(), "300");
    assert_eq!(got[0], Verdict::Caught);
    assert_eq!(got[1], Verdict::Survived);
    assert!(matches!(got[2], Verdict::DoesNotCompile(_)), "{:?}", got[2]);
    assert!(matches!(&got[3], Verdict::Stale(why) if why.contains("0 times")), "{:?}", got[3]);
    assert!(matches!(&got[4], Verdict::Stale(_)), "{:?}", got[4]);
    assert!(matches!(got[5], Verdict::Crashed(_)), "{:?}", got[5]);
    assert_eq!(got[6], Verdict::Caught);
}

#[test]
fn a_test_that_fails_anyway_or_does_not_exist_proves_nothing() {
    let faults = [
        fault("fails anyway", "x + x", "x - x", "-p tiny --lib"),
        fault("no test", "x + x", "x - x", "-p tiny --lib nothing"),
        fault("no package", "x + x", "x - x", "-p huge"),
    ];
    let got = verdicts(&faults.concat(), "300");
    assert!(got.iter().all(|v| matches!(v, Verdict::BadTest(_))), "{got:?}");
}

#[test]
fn a_hanging_test_is_ended() {
    let faults = [
        fault("warm", "x + x", "x - x", "-p tiny --lib twice"),
        fault("hang", "x + x", "loop { std::thread::sleep(std::time::Duration::from_secs(1)) }", "-p tiny --lib twice"),
    ];
    let got = verdicts(&faults.concat(), "6");
    assert_eq!(got, [Verdict::Caught, Verdict::TimedOut]);
}

#[test]
fn a_survivor_fails_the_command_and_its_place_is_named() {
    let row = |verdict| Row {
        fault: spec::parse(Path::new("a.toml"), &fault("n", "a", "b", "-p x")).unwrap().remove(0),
        verdict,
        took: Duration::ZERO,
    };
    let text = table::results(&[row(Verdict::Caught), row(Verdict::Survived)]);
    assert!(text.contains("1 of 2 faults caught") && text.contains("a.toml:1"), "{text}");
    assert!(table::results(&[row(Verdict::Caught)]).ends_with("1 of 1 faults caught\n"));
}

#[test]
fn an_empty_folder_passes_and_an_unknown_name_is_an_error() {
    let empty = Scratch::new(&[("xtask/faults/README.md", "")]);
    assert_eq!(run(&empty, &[]), Ok(true));
    let one = tiny(&fault("n", "a", "b", "-p tiny"));
    assert_eq!(run(&one, &["--list".into()]), Ok(true));
    assert!(run(&one, &["--only".into(), "m".into()]).unwrap_err().contains("`m`"));
}

#[test]
fn one_fault_is_planted_or_all_from_one_on() {
    let all: Vec<Fault> = ["a", "b", "c"]
        .map(|name| spec::parse(Path::new("a.toml"), &fault(name, "a", "b", "-p x")).unwrap().remove(0))
        .into();
    let names = |args: &[&str]| -> Vec<String> {
        chosen(all.clone(), &options(args).unwrap()).unwrap().into_iter().map(|f| f.name).collect()
    };
    assert_eq!(names(&[]), ["a", "b", "c"]);
    assert_eq!(names(&["--from", "b"]), ["b", "c"]);
    assert_eq!(names(&["--only", "b"]), ["b"]);
    assert!(chosen(all.clone(), &options(&["--from", "d"]).unwrap()).unwrap_err().contains("`d`"));
}

#[test]
fn faults_that_do_not_fit_are_found_without_planting_them() {
    let faults = [
        fault("fits", "x + x", "x - x", "-p tiny"),
        fault("stale", "x * x", "x", "-p tiny"),
        fault("ambiguous", "x", "y", "-p tiny"),
    ];
    let repo = tiny(&faults.concat());
    let found: Vec<String> = unfit(&repo).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("`stale`: `find` occurs 0 times") && found[1].contains("`ambiguous`"), "{found:?}");
    assert_eq!(unfit(&Scratch::new(&[("xtask/src/a.rs", "")])), Ok(Vec::new()));
}

#[test]
fn bad_fault_files_are_refused_with_their_line() {
    let good = fault("n", "a", "b", "-p x");
    let bad = [
        (good.replace("kind", "sort"), "sort"),
        (good.replace("\"src/lib.rs\"", "\"../lib.rs\""), "relative"),
        (good.replace("\"b\"", "\"a\""), "differ"),
        (good.replace("-p x", "--lib"), "package"),
        (good.replace("[[fault]]", "[[error]]"), "[[fault]]"),
        (good.replace("name = \"n\"\n", ""), "name"),
    ];
    for (text, word) in bad {
        let error = spec::parse(Path::new("a.toml"), &text).unwrap_err();
        assert!(error.contains(word) && error.contains("a.toml:1"), "{error}");
    }
    let twice = tiny(&(good.clone() + &good));
    assert!(spec::load(&twice, Path::new(FOLDER)).unwrap_err().contains("also the name"));
}

#[test]
fn the_copy_follows_the_checkout() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("tree");
    Tree::sync(&Scratch::new(&[("a/b.txt", "1"), ("c.txt", "2")]), &root).unwrap();
    Tree::sync(&Scratch::new(&[("c.txt", "3")]), &root).unwrap();
    assert!(!root.join("a").exists());
    assert_eq!(std::fs::read_to_string(root.join("c.txt")).unwrap(), "3");
}

#[test]
fn options_are_read_and_bad_ones_refused() {
    let read = options(&["x.toml", "--only", "n", "--jobs", "2", "--list"]).unwrap();
    assert_eq!((read.source, read.only, read.jobs, read.list), ("x.toml".into(), Some("n".into()), Some(2), true));
    for bad in [&["--jobs", "0"][..], &["--jobs"], &["--fast"], &["--timeout", "x"]] {
        assert!(options(bad).is_err(), "{bad:?}");
    }
}
