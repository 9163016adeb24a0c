//! The processors that a network computes on, as the system tells them.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::mpsc::channel;

use remat_lite::{ErrorKind, Network, Options};

use crate::{bits, folder, open, session};

/// The processors that each thread of the process may run on, by its number, with its name.
fn threads() -> BTreeMap<String, (String, String)> {
    let all = std::fs::read_dir("/proc/self/task").expect("Linux");
    let of = |path: std::path::PathBuf| {
        // a thread of another test may end meanwhile
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let line = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).map(|v| v.trim().to_owned());
        Some((line("Pid:")?, (line("Name:")?, line("Cpus_allowed_list:")?)))
    };
    all.filter_map(|t| of(t.ok()?.path())).collect()
}

fn own() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux");
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    list.expect("every kernel tells it").trim().to_owned()
}

/// The processors of `0-2, 5`.
fn numbers(list: &str) -> Vec<usize> {
    let number = |n: &str| n.trim().parse::<usize>().expect("a number");
    let range = |part: &str| match part.split_once('-') {
        Some((a, b)) => number(a)..=number(b),
        None => number(part)..=number(part),
    };
    list.split(',').flat_map(range).collect()
}

fn on(processors: Vec<usize>) -> Options {
    Options { affinity: Some(processors), threads: 3, ..Options::default() }
}

#[test]
fn threads_of_a_network_and_the_caller_within_a_run_have_its_processors() {
    let mine = own();
    let last = *numbers(&mine).last().expect("one at least");
    for name in ["cnn", "positive"] {
        let output = open(name, Options::default()).outputs()[0].name.clone();
        let mut free = session(&open(name, Options::default()), name);
        free.run().expect("it runs");
        let before = threads();
        let network = open(name, on(vec![last]));
        let mut s = session(&network, name);
        let (tell, seen) = channel();
        s.on_start(move || tell.send(own()).expect("heard")).expect("at rest");
        s.run().expect("it runs");
        assert_eq!(seen.recv().expect("a run"), last.to_string(), "{name}: the caller, within the run");
        assert_eq!(own(), mine, "{name}: the caller, after it");
        s.run_async().expect("it starts").wait().expect("it runs");
        assert_eq!(seen.recv().expect("a run"), last.to_string(), "{name}: the session's thread");
        assert_eq!(own(), mine);
        assert_eq!(bits(&mut s, &output), bits(&mut free, &output));
        if numbers(&mine).len() > 1 {
            // other tests start threads too, which have all processors
            let started = threads().into_iter().filter(|(id, _)| !before.contains_key(id));
            let pinned = started.filter(|(_, (_, list))| *list == last.to_string()).map(|(_, (name, _))| name);
            let workers = pinned.filter(|n| n.starts_with("remat-intra-op")).count();
            assert!(workers >= 2, "{name}: {workers}");
        }
    }
}

#[test]
fn a_panic_within_a_run_gives_the_caller_its_processors_back() {
    let mine = own();
    let network = open("cnn", on(vec![numbers(&mine)[0]]));
    let mut s = session(&network, "cnn");
    s.on_start(|| panic!("planted")).expect("at rest");
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| s.run())).is_err());
    assert_eq!(own(), mine);
}

#[test]
fn processors_that_are_not_there_are_errors() {
    let path = folder("cnn").join("model.onnx");
    let mine = numbers(&own());
    for (processors, words) in
        [(vec![], "has no processor"), (vec![mine[0], 1_000_000], "processor 1000000"), (vec![usize::MAX], "processor")]
    {
        let e = Network::open(&path, on(processors)).expect_err("none");
        assert!(e.kind() == ErrorKind::Value && e.to_string().contains(words), "{e}");
    }
    assert_eq!(numbers(&own()), mine);
}

/// Set in a process of one processor: that one, and another.
const CHILD: &str = "REMAT_TEST_ONE_PROCESSOR";

#[test]
fn processors_that_the_process_does_not_have_are_errors() {
    let mine = numbers(&own());
    let ([first, .., last], (tell, ended)) = (&mine[..], channel()) else { return };
    let network = open("cnn", on(vec![*first]));
    let mut s = session(&network, "cnn");
    let given = format!("{first} {last}");
    // a process begins with the processors of the thread that starts it, which are the network's while it runs
    s.on_start(move || {
        let mut child = Command::new(std::env::current_exe().expect("a test"));
        child.args(["--exact", "affinity::a_process_of_one_processor", "--nocapture"]).env(CHILD, &given);
        tell.send(child.output().expect("it starts")).expect("heard");
    })
    .expect("at rest");
    s.run().expect("it runs");
    let child = ended.recv().expect("it ends");
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&child.stderr));
}

#[test]
fn a_process_of_one_processor() {
    let Ok(given) = std::env::var(CHILD) else { return };
    let (first, last) = given.split_once(' ').expect("two numbers");
    assert_eq!(own(), first);
    let other = vec![last.parse().expect("a number")];
    let e = Network::open(folder("cnn").join("model.onnx"), on(other)).expect_err("another's");
    assert!(e.to_string().contains(&format!("has processor {last}; this process may run on {first}")), "{e}");
}
