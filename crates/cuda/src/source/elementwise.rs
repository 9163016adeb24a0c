//! Kernels whose outputs at an index are a function of the inputs at that index: the pointwise operators, fused or not.
//!
//! A kernel serves every shape. Extents and strides are arguments, so that eager programs compile one kernel for each function
//! and [`Form`]. An index is taken apart only for inputs that are neither dense nor one element.

use std::fmt::Write;

use remat_kernels::scalar::Expression;
use remat_types::{Error, ErrorKind, Layout, Result, Shape, SmallVec};

use super::expression::{c_type, statements};
use crate::driver::{Argument, Grid};

/// Threads of a block.
const THREADS: u32 = 256;
/// The most blocks of a launch; their threads go on to further elements.
const MOST_BLOCKS: u64 = 1 << 16;

/// The way from an index of the output to an element of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The element of the same index.
    Dense,
    /// The same element for every index.
    Constant,
    /// By strides.
    Strided,
}

/// Decides the source of a kernel together with its function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Axes into which an index is taken apart; 0 where no input needs that.
    pub rank: usize,
    /// The inputs in order.
    pub inputs: SmallVec<[Input; 4]>,
}

/// An output's elements in order, and where those of the inputs lie. Neighbouring axes are one where every input allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    elems: u64,
    extents: SmallVec<[u64; 6]>,
    /// For each input the elements to step along each axis.
    strides: SmallVec<[SmallVec<[i64; 6]>; 4]>,
}

impl Walk {
    /// Over an output of `shape`, to which the inputs are broadcast. Errors: Shape for an input that does not broadcast to it.
    pub fn new(shape: &Shape, inputs: &[&Layout]) -> Result<Walk> {
        let inputs: SmallVec<[Layout; 4]> = inputs.iter().map(|x| x.broadcast_to(shape)).collect::<Result<_>>()?;
        let mut walk = Walk {
            elems: shape.checked_elems()? as u64,
            extents: SmallVec::new(),
            strides: inputs.iter().map(|_| SmallVec::new()).collect(),
        };
        for axis in (0..shape.rank()).filter(|a| shape[*a] != 1) {
            walk.add(shape[axis] as u64, &inputs, axis);
        }
        Ok(walk)
    }

    /// Adds an inner axis, or makes it one with the last.
    fn add(&mut self, extent: u64, inputs: &[Layout], axis: usize) {
        let stride = |x: &Layout| x.strides()[axis] as i64;
        let is_one = |(s, x): (&SmallVec<[i64; 6]>, &Layout)| {
            s.last().is_some_and(|outer| Some(*outer) == stride(x).checked_mul(extent as i64))
        };
        if !self.extents.is_empty() && self.strides.iter().zip(inputs).all(is_one) {
            self.extents.pop().into_iter().for_each(|outer| self.extents.push(outer * extent));
            for (s, x) in self.strides.iter_mut().zip(inputs) {
                s.pop();
                s.push(stride(x));
            }
            return;
        }
        self.extents.push(extent);
        self.strides.iter_mut().zip(inputs).for_each(|(s, x)| s.push(stride(x)));
    }

    /// The form of its kernel.
    pub fn form(&self) -> Form {
        let inputs: SmallVec<[Input; 4]> = self.strides.iter().map(|s| self.input(s)).collect();
        let rank = if inputs.contains(&Input::Strided) { self.extents.len() } else { 0 };
        Form { rank, inputs }
    }

    fn input(&self, strides: &[i64]) -> Input {
        let mut dense = 1i64;
        let is_dense = self.extents.iter().zip(strides).rev().all(|(extent, stride)| {
            let is = *stride == dense;
            dense = dense.saturating_mul(*extent as i64);
            is
        });
        match (is_dense, strides.iter().all(|s| *s == 0)) {
            // of one element, which has no axes, both hold
            (true, _) => Input::Dense,
            (false, true) => Input::Constant,
            (false, false) => Input::Strided,
        }
    }

    /// The blocks of a launch; none for no elements.
    pub fn grid(&self) -> Option<Grid> {
        let blocks = self.elems.div_ceil(u64::from(THREADS)).min(MOST_BLOCKS) as u32;
        (blocks > 0).then_some(Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 })
    }

    /// The arguments of a launch. `gate` is the address of a word that must be 0 for the kernel to write anything, or 0 for none;
    /// `y` and `x` are the addresses of the outputs and of each input's first element.
    pub fn arguments(&self, gate: u64, y: &[u64], x: &[u64]) -> Vec<Argument> {
        let form = self.form();
        let mut all = vec![gate, self.elems];
        all.extend(&self.extents[..form.rank]);
        all.extend(y);
        for ((x, input), strides) in x.iter().zip(&form.inputs).zip(&self.strides) {
            all.push(*x);
            if *input == Input::Strided {
                all.extend(strides.iter().map(|s| *s as u64));
            }
        }
        all.into_iter().map(Argument::U64).collect()
    }
}

/// The source of the kernel of an expression in a form, with [`PRELUDE`](super::PRELUDE) before it. Its arguments are those of
/// [`Walk::arguments`]. An output may lie where a dense input does. Errors: those of [`statements`]; Internal for a form of
/// another number of inputs.
pub fn kernel(name: &str, e: &Expression, form: &Form) -> Result<String> {
    if form.inputs.len() != e.inputs.len() {
        let text = format!("a form of {} inputs for a function of {}", form.inputs.len(), e.inputs.len());
        return Err(Error::new(ErrorKind::Internal, text));
    }
    let element = |(k, input): (usize, &Input)| match input {
        Input::Dense => format!("x{k}[i]"),
        Input::Constant => format!("x{k}[0]"),
        Input::Strided => format!("x{k}[a{k}]"),
    };
    let inputs: Vec<String> = form.inputs.iter().enumerate().map(element).collect();
    let (body, results) = statements(e, &inputs, "v")?;
    let mut text = format!("extern \"C\" __global__ void {name}({}) {{\n", parameters(e, form));
    text += "if (gate != 0 && *gate != 0) return;\nconst u64 step = (u64)gridDim.x * blockDim.x;\n";
    text += "for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {\n";
    text += &places(form);
    text += &body;
    for (j, result) in results.iter().enumerate() {
        // writing to a String cannot fail
        let _ = writeln!(text, "y{j}[i] = {result};");
    }
    text += "}\n}\n";
    Ok(text)
}

fn parameters(e: &Expression, form: &Form) -> String {
    let mut all = vec!["const u32 *gate".to_owned(), "u64 n".to_owned()];
    all.extend((0..form.rank).map(|k| format!("u64 e{k}")));
    let result = |r: &u32| c_type(e.nodes[*r as usize].dtype);
    all.extend(e.results.iter().enumerate().map(|(j, r)| format!("{} *y{j}", result(r))));
    for (k, (dtype, input)) in e.inputs.iter().zip(&form.inputs).enumerate() {
        all.push(format!("const {} *x{k}", c_type(*dtype)));
        if *input == Input::Strided {
            all.extend((0..form.rank).map(|axis| format!("i64 x{k}s{axis}")));
        }
    }
    all.join(", ")
}

/// Statements that find the element of each strided input, as `a0`, `a1` and so on.
fn places(form: &Form) -> String {
    let strided: Vec<usize> = (0..form.inputs.len()).filter(|k| form.inputs[*k] == Input::Strided).collect();
    let mut text = String::new();
    if strided.is_empty() {
        return text;
    }
    text += "u64 rest = i;\n";
    for k in &strided {
        let _ = writeln!(text, "i64 a{k} = 0;");
    }
    for axis in (0..form.rank).rev() {
        let at = if axis == 0 { "rest".to_owned() } else { format!("rest % e{axis}") };
        let _ = writeln!(text, "{{\nconst i64 c = (i64)({at});");
        for k in &strided {
            let _ = writeln!(text, "a{k} += c * x{k}s{axis};");
        }
        if axis > 0 {
            let _ = writeln!(text, "rest /= e{axis};");
        }
        text += "}\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize], strides: &[isize]) -> Layout {
        Layout::new(Shape::from(shape), strides, 0).expect("a stride for each axis")
    }

    #[test]
    fn axes_that_every_input_walks_in_one_go_are_one() {
        let shape = Shape::from(&[2, 3, 4][..]);
        let dense = layout(&[2, 3, 4], &[12, 4, 1]);
        let walk = Walk::new(&shape, &[&dense, &dense]).expect("fits");
        assert_eq!((walk.extents.as_slice(), walk.form().rank), (&[24u64][..], 0));
        let turned = layout(&[2, 3, 4], &[1, 2, 6]);
        let walk = Walk::new(&shape, &[&dense, &turned]).expect("fits");
        assert_eq!(walk.extents.as_slice(), [2, 3, 4], "no two axes go together in both");
        assert_eq!(walk.form(), Form { rank: 3, inputs: SmallVec::from_slice(&[Input::Dense, Input::Strided]) });
        let row = layout(&[4], &[1]);
        let walk = Walk::new(&shape, &[&dense, &row]).expect("broadcasts");
        assert_eq!((walk.extents.as_slice(), walk.form().inputs[1]), (&[6u64, 4][..], Input::Strided));
        let one = layout(&[], &[]);
        assert_eq!(Walk::new(&shape, &[&dense, &one]).expect("broadcasts").form().inputs[1], Input::Constant);
    }

    #[test]
    fn no_elements_are_no_launch_and_a_wrong_shape_is_an_error() {
        let dense = layout(&[0, 3], &[3, 1]);
        let walk = Walk::new(&Shape::from(&[0, 3][..]), &[&dense]).expect("fits");
        assert!(walk.grid().is_none());
        let wide = layout(&[5], &[1]);
        assert_eq!(Walk::new(&Shape::from(&[2, 3][..]), &[&wide]).expect_err("5 is not 3").kind(), ErrorKind::Shape);
    }
}
