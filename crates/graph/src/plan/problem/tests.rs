use super::*;

const EXAMPLE: &str = r#"{
  "version": 1, "align": 64,
  "values": [ { "name": "x", "bytes": 1048576 }, { "name": "w1", "bytes": 4096 } ],
  "ops": [
    { "name": "conv1", "time_ns": 120000, "inputs": ["x", "w1"],
      "outputs": [ { "name": "a1", "bytes": 4194304 } ], "workspace": 65537, "repeatable": true },
    { "name": "view1", "time_ns": 0, "inputs": ["a1"], "outputs": [ { "name": "v1", "alias_of": "a1" } ] },
    { "name": "loss", "time_ns": 7, "inputs": ["v1"], "outputs": [ { "name": "g1", "bytes": 1 } ] },
    { "name": "update1", "time_ns": 900, "inputs": ["w1", "g1"],
      "outputs": [ { "name": "w1b", "writes": "w1" } ], "repeatable": false }
  ],
  "outputs": ["g1", "w1b"]
}"#;

#[test]
fn the_formats_example_is_read() {
    let p = Problem::from_json(EXAMPLE).expect("valid");
    assert_eq!((p.align(), p.ops().len(), p.values().len(), p.storages().len()), (64, 4, 6, 4));
    assert_eq!(p.ops()[0].workspace, 65536 + 64, "padded");
    assert_eq!(p.storages()[3].padded, 64);
    let (v1, a1, w1b) = (p.value_named("v1"), p.value_named("a1"), p.value_named("w1b"));
    let storage = |v: Option<usize>| p.values()[v.expect("known")].storage;
    assert_eq!(storage(v1), storage(a1));
    assert_eq!(storage(w1b), 1);
    assert!(!p.ops()[3].repeatable && p.ops()[0].repeatable);
    assert_eq!(p.base_time_ns(), 120_907);
    assert_eq!(p.given_bytes(), 1_048_576 + 4096);
}

#[test]
fn what_is_written_reads_back_equal() {
    let spec = Spec::from_json(EXAMPLE).expect("valid");
    assert_eq!(Spec::from_json(&spec.to_json()).expect("own output"), spec);
}

#[test]
fn what_may_be_taken_over_is_an_input_of_the_same_size() {
    let of = |bytes: u64, takes: &str| {
        let text = format!(
            r#"{{ "version": 1, "align": 4, "values": [ {{ "name": "x", "bytes": 7 }} ], "ops": [
            {{ "name": "f", "time_ns": 1, "inputs": ["x"], "outputs": [ {{ "name": "a", "bytes": 5 }} ] }},
            {{ "name": "g", "time_ns": 1, "inputs": ["a", "x"],
               "outputs": [ {{ "name": "b", "bytes": {bytes}, "may_take": ["{takes}"] }} ] }} ], "outputs": ["b"] }}"#
        );
        Problem::from_json(&text).map_err(|e| e.to_string())
    };
    let p = of(8, "a").expect("both are 8 bytes when padded");
    assert_eq!(p.ops()[1].takes, [(2, 1)]);
    assert_eq!(Spec::from_json(&p.spec().to_json()).expect("own output"), *p.spec());
    assert!(of(9, "a").expect_err("larger").contains("of another size"));
    assert!(of(8, "x").expect_err("given").contains("given"));
    assert!(of(8, "c").expect_err("unknown").contains("no input"));
}

/// A text of the example, its replacement, and the words that the error must have.
const HOSTILE: &[(&str, &str, &[&str])] = &[
    ("\"version\": 1,", "\"version\": 2,", &["`version` 2"]),
    ("\"version\": 1,", "", &["`version` is missing"]),
    ("\"align\": 64", "\"align\": 0", &["`align`", "not 0"]),
    ("\"align\": 64", "\"align\": 4611686018427387904", &["`align`"]),
    ("\"align\": 64", "\"align\": 1.5", &["`align`", "1.5"]),
    ("\"bytes\": 4194304", "\"bytes\": -1", &["ops[0] `conv1`", "outputs[0] `a1`", "`bytes`", "-1"]),
    ("\"bytes\": 4194304", "\"bytes\": 1e300", &["ops[0] `conv1`", "`bytes`"]),
    ("\"bytes\": 4194304", "\"bytes\": 99999999999999999999999", &["ops[0]", "`bytes`"]),
    ("\"bytes\": 4194304", "\"bytes\": \"4\"", &["`bytes`", "a string"]),
    ("\"bytes\": 4194304", "\"bytes\": null", &["`bytes`", "null"]),
    ("\"bytes\": 4194304", "\"bytes\": 1152921504606846976", &["ops[0] `conv1`", "output `a1`", "sizes together"]),
    ("\"time_ns\": 120000", "\"time_ns\": -5", &["ops[0] `conv1`", "`time_ns`"]),
    ("\"time_ns\": 120000", "\"time_ns\": 1152921504606846976", &["times together"]),
    ("\"time_ns\": 120000,", "", &["ops[0] `conv1`", "`time_ns` is missing"]),
    (
        "{ \"name\": \"a1\", \"bytes\": 4194304 }",
        "{ \"bytes\": 4 }",
        &["ops[0] `conv1`: outputs[0]", "`name` is missing"],
    ),
    ("\"bytes\": 4194304", "\"byte\": 4", &["outputs[0] `a1`", "no field `byte`"]),
    (", \"bytes\": 4194304", "", &["outputs[0] `a1`", "`bytes` is missing"]),
    ("\"repeatable\": false", "\"repeatble\": false", &["ops[3] `update1`", "no field `repeatble`", "`repeatable`"]),
    ("\"align\": 64", "\"aling\": 64", &["no field `aling`"]),
    ("\"bytes\": 4096", "\"bytes\": 4096, \"note\": 1", &["values[1] `w1`", "no field `note`"]),
    ("\"outputs\": [\"g1\"", "\"spill\": { \"read\": 3 }, \"outputs\": [\"g1\"", &["spill", "no field `read`"]),
    ("\"alias_of\": \"a1\"", "\"alias_of\": \"x\"", &["ops[1] `view1`", "output `v1`", "must name an input"]),
    ("\"alias_of\": \"a1\"", "\"alias_of\": \"a1\", \"writes\": \"a1\"", &["exclude each other"]),
    ("\"inputs\": [\"v1\"]", "\"inputs\": [\"nope\"]", &["ops[2] `loss`", "`nope` is not known"]),
    ("\"inputs\": [\"x\", \"w1\"]", "\"inputs\": [\"x\", \"g1\"]", &["ops[0] `conv1`", "`loss`", "cycle"]),
    ("\"inputs\": [\"v1\"]", "\"inputs\": [\"g1\"]", &["ops[2] `loss`", "`g1`", "cycle"]),
    ("\"inputs\": [\"v1\"]", "\"inputs\": [7]", &["ops[2] `loss`", "`inputs[0]`", "a string"]),
    ("\"name\": \"v1\"", "\"name\": \"x\"", &["ops[1] `view1`", "another value has this name"]),
    ("\"name\": \"view1\"", "\"name\": \"conv1\"", &["ops[1] `conv1`", "another operator"]),
    ("[\"g1\", \"w1b\"]", "[\"g1\", \"w1\"]", &["outputs[1]", "`w1` was overwritten by `update1`"]),
    ("[\"g1\", \"w1b\"]", "[\"who\"]", &["outputs[0]", "`who` is not known"]),
    ("\"repeatable\": false", "\"repeatable\": 0", &["ops[3] `update1`", "`repeatable`", "true or false"]),
    ("\"outputs\": [\"g1\"", "\"spill\": { \"write_bytes_per_s\": -3 }, \"outputs\": [\"g1\"", &["spill", "-3"]),
    ("\"outputs\": [\"g1\", \"w1b\"]", "\"outputs\": {}", &["`outputs` must be an array"]),
    ("{ \"name\": \"x\", \"bytes\": 1048576 }", "3", &["values[0]", "an object"]),
    (
        "{ \"name\": \"v1\", \"alias_of\": \"a1\" }",
        "{ \"name\": \"v1\", \"writes\": \"a1\" }, { \"name\": \"v2\", \"alias_of\": \"a1\" }",
        &["`v1` and `v2`"],
    ),
];

#[test]
fn hostile_input_gives_an_error_that_names_the_place() {
    for (from, to, says) in HOSTILE {
        assert!(EXAMPLE.contains(from), "{from}");
        let e = Problem::from_json(&EXAMPLE.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(says.iter().all(|s| e.contains(s)), "{from} -> {to}: {e}");
    }
}

#[test]
fn broken_documents_are_errors() {
    let deep = "[".repeat(100_000);
    for text in ["", "{", "[]", "null", "\u{0}", "{\"version\": 1}", &deep, "{\"version\": \"1\"}"] {
        assert!(Problem::from_json(text).is_err(), "{}", &text[..text.len().min(20)]);
    }
    for cut in (0..EXAMPLE.len()).step_by(7) {
        assert!(Problem::from_json(&EXAMPLE[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_read_after_a_write_is_refused() {
    let late = r#"{ "name": "late", "time_ns": 1, "inputs": ["w1"], "outputs": [] } ], "outputs": ["g1""#;
    let text = EXAMPLE.replacen("}\n  ],\n  \"outputs\": [\"g1\"", &format!("}},\n{late}"), 1);
    let e = Problem::from_json(&text).expect_err("late read").to_string();
    assert!(e.contains("ops[4] `late`") && e.contains("overwritten by `update1`"), "{e}");
}
