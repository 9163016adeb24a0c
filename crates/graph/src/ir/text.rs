//! The text form.
//!
//! One line a definition, in an order in which they can be read; what [`Graph::to_text`] prints, [`Graph::parse`]
//! reads.
//!
//! ```text
//! remat.graph 1
//! input x: f32[2, 3]
//! state w: f32[3, 4]
//! const %2: f32[] = [0.5]
//! %3: f32[2, 4] = matmul 1 {"transpose":[false,false]} (x, w) in "fc"
//! next w = %9
//! output logits = %3
//! ```
//!
//! A node gives its outputs with their types, the op's name, the version and parameters of the op's serial form, its
//! inputs, the scope (`in "block1.conv"`) and the nodes after which it runs (`after %3`). Constants are lists of
//! numbers in row-major order, or the bytes (little-endian) as `hex` where a number has no exact decimal form.

use std::fmt::Write;

use remat_types::{DType, Error, ErrorKind, HostTensor, Result};

use super::{Graph, Node, Origin, ValueId};

/// The version of the text form.
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER: &str = "remat.graph";

/// Constants of more elements are printed as bytes.
const LIST_MAX_ELEMS: usize = 64;

impl Graph {
    /// The text form. Errors (Format) if an op's parameters do not serialise.
    pub fn to_text(&self) -> Result<String> {
        self.print(&|_, data| data_text(data))
    }

    /// The text form, with constants as `constant` gives them.
    pub(crate) fn print(&self, constant: &dyn Fn(ValueId, &HostTensor) -> String) -> Result<String> {
        let mut s = format!("{HEADER} {VERSION}\n");
        for (what, ids) in
            [("input", self.inputs().to_vec()), ("state", self.states().iter().map(|s| s.value).collect())]
        {
            for v in ids {
                line(&mut s, format_args!("{what} {}", self.typed(v)));
            }
        }
        for v in self.value_ids() {
            if let Origin::Constant(data) = &self.value(v).origin {
                line(&mut s, format_args!("const {} = {}", self.typed(v), constant(v, data)));
            }
        }
        for n in self.nodes() {
            line(&mut s, format_args!("{}", self.node_text(n)?));
        }
        for state in self.states() {
            if let Some(next) = state.next {
                line(&mut s, format_args!("next {} = {}", self.quoted(state.value), self.quoted(next)));
            }
        }
        for o in self.outputs() {
            line(&mut s, format_args!("output {} = {}", name_text(&o.name), self.quoted(o.value)));
        }
        Ok(s)
    }

    fn node_text(&self, n: &Node) -> Result<String> {
        let list = |ids: &[ValueId], f: &dyn Fn(ValueId) -> String| -> String {
            ids.iter().map(|v| f(*v)).collect::<Vec<_>>().join(", ")
        };
        let form = n.op.to_json()?;
        let no = || Error::new(ErrorKind::Format, "the serial form of an op lacks a field").with_op(n.op.label());
        let name = form["op"].as_str().ok_or_else(no)?;
        let params = form.get("params").ok_or_else(no)?;
        let mut s = format!("{} = {name} {} {params}", list(&n.y, &|v| self.typed(v)), form["v"]);
        write_to(&mut s, format_args!(" ({})", list(&n.x, &|v| self.quoted(v))));
        if let Some(scope) = &n.scope {
            write_to(&mut s, format_args!(" in {}", serde_json::Value::from(&**scope)));
        }
        if !n.after.is_empty() {
            let first: Vec<ValueId> = n.after.iter().filter_map(|a| self.node(*a).y.first().copied()).collect();
            write_to(&mut s, format_args!(" after {}", list(&first, &|v| self.quoted(v))));
        }
        Ok(s)
    }

    fn typed(&self, v: ValueId) -> String {
        let f = self.fact(v);
        format!("{}: {}{}", self.quoted(v), f.dtype, f.shape)
    }

    fn quoted(&self, v: ValueId) -> String {
        match &self.value(v).name {
            Some(name) => name_text(name),
            None => self.label(v),
        }
    }
}

/// A name as it stands in the text: plain if it is a path of identifiers, else a JSON string.
pub(super) fn name_text(name: &str) -> String {
    if is_plain(name) { name.to_owned() } else { serde_json::Value::from(name).to_string() }
}

pub(crate) fn is_plain(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(word)
}

fn line(s: &mut String, args: std::fmt::Arguments<'_>) {
    write_to(s, args);
    s.push('\n');
}

fn write_to(s: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = s.write_fmt(args);
}

/// `[1, 2]`, or `hex 00ff` where that is exact and a list is not.
pub(super) fn data_text(data: &HostTensor) -> String {
    let list = data.elems() <= LIST_MAX_ELEMS;
    let text = |all: Vec<String>| format!("[{}]", all.join(", "));
    if data.elems() == 0 {
        return "[]".to_owned();
    }
    match data.dtype() {
        DType::F32 | DType::F64 if list => {
            let all = data.to_f64_vec();
            if all.iter().all(|v| v.is_finite()) {
                // Shortest forms that read back as the same number; -0 keeps its sign.
                let short =
                    |v: &f64| if data.dtype() == DType::F32 { format!("{:?}", *v as f32) } else { format!("{v:?}") };
                return text(all.iter().map(short).collect());
            }
        }
        DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32
            if list =>
        {
            return text(data.to_i64_vec().iter().map(i64::to_string).collect());
        }
        _ => {}
    }
    let mut s = String::with_capacity(4 + 2 * data.bytes().len());
    s.push_str("hex ");
    data.bytes().iter().for_each(|b| write_to(&mut s, format_args!("{b:02x}")));
    s
}
