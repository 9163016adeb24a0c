//! A problem as JSON.

use serde_json::{Value, json};

use super::{Bytes, OpSpec, Spec};

impl Spec {
    /// The JSON form, one operator a line.
    pub fn to_json(&self) -> String {
        let lines = |items: Vec<Value>| {
            let items: Vec<String> = items.iter().map(|v| format!("    {v}")).collect();
            if items.is_empty() { "[]".to_owned() } else { format!("[\n{}\n  ]", items.join(",\n")) }
        };
        let values = lines(self.values.iter().map(|(n, b)| json!({ "name": n, "bytes": b })).collect());
        let ops = lines(self.ops.iter().map(op).collect());
        let spill = json!({
            "write_bytes_per_s": self.spill.write_bytes_per_s,
            "read_bytes_per_s": self.spill.read_bytes_per_s,
        });
        format!(
            "{{\n  \"version\": 1,\n  \"align\": {},\n  \"values\": {values},\n  \"ops\": {ops},\n  \"outputs\": {},\n  \
             \"spill\": {spill}\n}}\n",
            self.align,
            json!(self.outputs),
        )
    }
}

fn op(o: &OpSpec) -> Value {
    let outputs: Vec<Value> = o
        .outputs
        .iter()
        .map(|out| match &out.bytes {
            Bytes::Own(bytes) => json!({ "name": out.name, "bytes": bytes }),
            Bytes::OwnOr(bytes, of) => json!({ "name": out.name, "bytes": bytes, "may_take": of }),
            Bytes::AliasOf(of) => json!({ "name": out.name, "alias_of": of }),
            Bytes::Writes(of) => json!({ "name": out.name, "writes": of }),
        })
        .collect();
    let mut v = json!({ "name": o.name, "time_ns": o.time_ns, "inputs": o.inputs, "outputs": outputs });
    if o.workspace > 0 {
        v["workspace"] = json!(o.workspace);
    }
    if !o.repeatable {
        v["repeatable"] = json!(false);
    }
    v
}
