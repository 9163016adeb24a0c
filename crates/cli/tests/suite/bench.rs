//! `remat bench`: figures that fit together, and errors that show the right forms.

use serde_json::Value;

use crate::{OK, USAGE, assert_code, err, out, remat};

/// The figures of a short measurement.
fn figures(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &[&["bench", "--seconds", "0.01", "--json", "-"], args].concat());
    assert_code(&o, OK);
    serde_json::from_str(&out(&o)).expect("it is JSON")
}

fn number(v: &Value, name: &str) -> f64 {
    v[name].as_f64().unwrap_or_else(|| panic!("`{name}` in {v}"))
}

#[test]
fn figures_of_a_work_fit_together() {
    let works: [(&[&str], f64, f64); 8] = [
        (&["matmul:48x32x40", "--batch", "3", "--threads", "1"], 2.0 * 3.0 * 48.0 * 32.0 * 40.0, 12.0 * 4736.0),
        (&["matmul:48x32x40:tt", "--threads", "2"], 2.0 * 48.0 * 32.0 * 40.0, 4.0 * 4736.0),
        (&["matmul:48x32x40:nt", "--dtype", "bf16"], 2.0 * 48.0 * 32.0 * 40.0, 2.0 * 4736.0),
        (&["matmul:48x32x40", "--dtype", "i8"], 2.0 * 48.0 * 32.0 * 40.0, 2816.0 + 4.0 * 1920.0),
        (&["matmul:48x32x40", "--dtype", "f64"], 2.0 * 48.0 * 32.0 * 40.0, 8.0 * 4736.0),
        (&["conv:8x9x9-16k3p1", "--batch", "2"], 2.0 * 2.0 * 16.0 * 81.0 * 72.0, 4.0 * (1296.0 + 1152.0 + 2592.0)),
        (&["conv:8x9x9-8k3s2p1g8:dx"], 2.0 * 8.0 * 25.0 * 9.0, 4.0 * (648.0 + 72.0 + 200.0)),
        (&["conv:8x9x9-16k1:dw"], 2.0 * 16.0 * 81.0 * 8.0, 4.0 * (648.0 + 128.0 + 1296.0)),
    ];
    for (args, flops, bytes) in works {
        let v = figures(args);
        let ms = &v["latency_ms"];
        let [min, p50, p90] = ["min", "p50", "p90"].map(|name| number(ms, name));
        assert!(0.0 < min && min <= p50 && p50 <= p90, "{v}");
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
        assert!(near(number(&v, "gflops") * p50 * 1e6, flops), "{v}");
        assert!(near(number(&v, "share_of_peak") * number(&v, "peak_gflops"), number(&v, "gflops")), "{v}");
        assert!(near(number(&v, "share_of_bandwidth") * number(&v, "peak_gb_s"), number(&v, "gb_s")), "{v}");
        assert!(near(number(&v, "peak_bytes") - number(&v, "workspace_bytes"), bytes), "{v}");
        assert_eq!(v["work"], args[0]);
    }
}

#[test]
fn a_network_is_timed_eager_compiled_and_under_a_budget() {
    let of = |more: &[&str]| figures(&[&["train:mlp", "--batch", "8", "--threads", "1"], more].concat());
    let (eager, compiled) = (of(&["--eager"]), of(&["--compiled"]));
    // three products for each of the layers, but for the first, which has no gradient of its input
    let products = [2 * 784 * 512, 3 * 512 * 512, 3 * 512 * 10];
    let least = 8.0 * 2.0 * products.iter().sum::<usize>() as f64;
    for v in [&eager, &compiled] {
        let flops = number(v, "gflops") * number(&v["latency_ms"], "p50") * 1e6;
        // the optimiser's are some for each of the 669,706 parameters
        assert!(flops > least && flops < least + 10.0 * 669_706.0, "{v}");
        assert!(number(v, "peak_bytes") > 3.0 * 4.0 * 669_706.0, "weights, momentum, gradients: {v}");
    }
    assert!(number(&compiled, "workspace_bytes") > 0.0 && number(&eager, "workspace_bytes") == 0.0);
    let tight = of(&["--compiled", "--memory-budget", "90%"]);
    assert!(number(&tight, "peak_bytes") <= 0.9 * number(&compiled, "peak_bytes"), "{tight}, {compiled}");
    assert_eq!(figures(&["model:mlp"])["batch"], 1);
}

#[test]
fn the_operators_of_a_compiled_network_say_where_the_time_goes() {
    let given = ["bench", "train:mlp", "--batch", "8", "--threads", "1", "--seconds", "0.01"];
    let v = figures(&[&given[1..6], &["--compiled", "--operators"]].concat());
    let all = v["operators"].as_array().unwrap_or_else(|| panic!("operators in {v}"));
    let share: f64 = all.iter().map(|o| number(o, "share")).sum();
    // a quotient and an addition for each, each rounded
    assert!((share - 1.0).abs() <= all.len() as f64 * f64::EPSILON, "{v}");
    assert!(all.windows(2).all(|o| number(&o[0], "ms") >= number(&o[1], "ms")), "the longest first: {v}");
    // 8 x 784 by 784 x 512, each once forward and once for the weight's gradient
    let flops = |o: &Value| number(o, "gflops") * number(o, "ms") * 1e6;
    // what is fused into a product is a bias and an activation of its 8 x 512 elements: at most 4 operations each
    let least = 2.0 * 8.0 * 784.0 * 512.0;
    let product = |o: &&Value| (least..=least + 4.0 * 8.0 * 512.0).contains(&flops(o).round());
    assert_eq!(all.iter().filter(product).map(|o| number(o, "calls")).sum::<f64>(), 2.0, "{v}");
    assert!(figures(&[&given[1..6], &["--compiled"]].concat()).get("operators").is_none());

    let dir = tempfile::tempdir().expect("a temporary folder");
    let told = remat(dir.path(), &[&given[..], &["--compiled", "--operators", "2"]].concat());
    assert_code(&told, OK);
    let text = out(&told);
    let rows: Vec<&str> = text.lines().skip_while(|l| !l.ends_with("operator")).skip(1).collect();
    assert!(rows.len() == 3 && rows[2].ends_with("more"), "{text}");
    assert_code(&remat(dir.path(), &[&given[..], &["--operators"]].concat()), 1);
}

#[test]
fn the_machine_is_measured_for_each_number_of_threads() {
    let v = figures(&["machine", "--threads", "2"]);
    let rows = v.as_array().expect("a list");
    assert_eq!(rows.len(), 2);
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row["threads"], i + 1);
        assert!(["fma_gflops", "triad_gb_s", "read_gb_s"].iter().all(|name| number(row, name) > 0.0), "{row}");
    }
    assert!(rows[0]["round_trip_ns"].is_null() && number(&rows[1], "round_trip_ns") > 0.0, "{v}");
}

#[test]
fn people_get_a_table_and_programs_a_file() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["bench", "matmul:8x8x8", "--seconds", "0.01", "--threads", "1"]);
    assert_code(&o, OK);
    assert!(out(&o).contains("GFLOP/s") && out(&o).contains("bound by"), "{}", out(&o));
    let o = remat(dir.path(), &["bench", "matmul:8x8x8", "--seconds", "0.01", "--json", "f.json"]);
    assert_code(&o, OK);
    assert!(out(&o).is_empty() && crate::json(&dir.path().join("f.json"))["runs"].is_u64());
}

#[test]
fn a_wrong_work_is_refused_with_the_right_forms() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let wrong: [&[&str]; 8] = [
        &["nothing"],
        &["conv:64x56x56-64k3g5"],
        &["matmul:1x2"],
        &["matmul:1x2x3", "--threads", "0"],
        &["matmul:1x2x3", "--batch", "0"],
        &["matmul:1x2x3", "--seconds", "nan"],
        &["matmul:1x2x3", "--dtype", "u8"],
        &[],
    ];
    for args in wrong {
        let o = remat(dir.path(), &[&["bench"], args].concat());
        assert_code(&o, USAGE);
        assert!(err(&o).contains("error: "), "{}", err(&o));
    }
    let o = remat(dir.path(), &["bench", "train:mlp", "--dtype", "f16"]);
    assert_code(&o, 1);
    assert!(err(&o).contains("--dtype is for matmul"), "{}", err(&o));
    let o = remat(dir.path(), &["bench", "conv:64x56x56"]);
    assert!(err(&o).contains("conv:CxHxW-KkRsSpPdDgG"), "{}", err(&o));
}

#[test]
fn operands_beyond_memory_are_an_error() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for work in ["matmul:9999999999x9999999999x9999999999", "conv:100000x9000x9000-1k1"] {
        let o = remat(dir.path(), &["bench", work]);
        assert_code(&o, 1);
        assert!(err(&o).contains("at most 16 GiB"), "{}", err(&o));
    }
}
