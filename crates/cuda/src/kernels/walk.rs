//! Ways from an index of the output to the elements of strided inputs.
//!
//! Extents and strides are arguments of kernels, so that eager programs compile one kernel for each function and [`Form`]. An
//! index is taken apart only for inputs that are neither dense nor one element.

use std::fmt::Write;

use remat_types::{Layout, Result, Shape, SmallVec};

use super::movement::place_type;
use super::plan::Builder;

/// The way from an index of the output to an element of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
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
    pub inputs: SmallVec<[Access; 4]>,
}

/// An output's elements in order, and where those of the inputs lie. Neighbouring axes are one where every input allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Before the names of variables in C, for a kernel with several walks.
    name: &'static str,
    elems: u64,
    extents: SmallVec<[u64; 6]>,
    /// For each input the elements to step along each axis.
    strides: SmallVec<[SmallVec<[i64; 6]>; 4]>,
}

impl Walk {
    /// Over an output of `shape`, to which the inputs are broadcast. Errors: Shape for an input that does not broadcast to it.
    pub fn new(shape: &Shape, inputs: &[&Layout]) -> Result<Walk> {
        Walk::named("", shape, inputs)
    }

    /// [`Walk::new`] whose variables in C have a name before them.
    pub fn named(name: &'static str, shape: &Shape, inputs: &[&Layout]) -> Result<Walk> {
        let inputs: SmallVec<[Layout; 4]> = inputs.iter().map(|x| x.broadcast_to(shape)).collect::<Result<_>>()?;
        let mut walk = Walk {
            name,
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
        let inputs: SmallVec<[Access; 4]> = self.strides.iter().map(|s| self.access(s)).collect();
        let rank = if inputs.contains(&Access::Strided) { self.extents.len() } else { 0 };
        Form { rank, inputs }
    }

    fn access(&self, strides: &[i64]) -> Access {
        let mut dense = 1i64;
        let is_dense = self.extents.iter().zip(strides).rev().all(|(extent, stride)| {
            let is = *stride == dense;
            dense = dense.saturating_mul(*extent as i64);
            is
        });
        match (is_dense, strides.iter().all(|s| *s == 0)) {
            // of one element, which has no axes, both hold
            (true, _) => Access::Dense,
            (false, true) => Access::Constant,
            (false, false) => Access::Strided,
        }
    }

    /// The elements of the output.
    pub fn elems(&self) -> u64 {
        self.elems
    }

    /// Declares the extents and strides that [`Walk::places`] reads, for the inputs in the order of [`Walk::new`].
    pub fn declare(&self, b: &mut Builder) {
        let form = self.form();
        for (axis, extent) in self.extents[..form.rank].iter().enumerate() {
            b.u64(format!("{}e{axis}", self.name), *extent);
        }
        for (k, strides) in self.strides.iter().enumerate().filter(|(k, _)| form.inputs[*k] == Access::Strided) {
            for (axis, stride) in strides.iter().enumerate() {
                b.i64(format!("{}s{k}_{axis}", self.name), *stride);
            }
        }
    }

    /// Statements that find the element of each strided input for an index `i`, and for each input the expression in C that is
    /// the index of its element.
    pub fn places(&self) -> (String, Vec<String>) {
        let (form, name) = (self.form(), self.name);
        let place = |(k, access): (usize, &Access)| match access {
            Access::Dense => "i".to_owned(),
            Access::Constant => "0".to_owned(),
            Access::Strided => format!("{name}a{k}"),
        };
        let places = form.inputs.iter().enumerate().map(place).collect();
        let strided: Vec<usize> = (0..form.inputs.len()).filter(|k| form.inputs[*k] == Access::Strided).collect();
        let mut text = String::new();
        if strided.is_empty() {
            return (text, places);
        }
        // a division of 64 bits takes many instructions
        let place = place_type(self.elems);
        // writing to a String cannot fail
        let _ = writeln!(text, "{place} {name}rest = ({place})i;");
        for k in &strided {
            let _ = writeln!(text, "i64 {name}a{k} = 0;");
        }
        for axis in (0..form.rank).rev() {
            let extent = format!("({place}){name}e{axis}");
            let at = if axis == 0 { format!("{name}rest") } else { format!("{name}rest % {extent}") };
            let _ = writeln!(text, "{{\nconst i64 c = (i64)({at});");
            for k in &strided {
                let _ = writeln!(text, "{name}a{k} += c * {name}s{k}_{axis};");
            }
            if axis > 0 {
                let _ = writeln!(text, "{name}rest /= {extent};");
            }
            text += "}\n";
        }
        (text, places)
    }
}

#[cfg(test)]
mod tests {
    use remat_types::ErrorKind;

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
        assert_eq!(walk.form(), Form { rank: 3, inputs: SmallVec::from_slice(&[Access::Dense, Access::Strided]) });
        let row = layout(&[4], &[1]);
        let walk = Walk::new(&shape, &[&dense, &row]).expect("broadcasts");
        assert_eq!((walk.extents.as_slice(), walk.form().inputs[1]), (&[6u64, 4][..], Access::Strided));
        let one = layout(&[], &[]);
        assert_eq!(Walk::new(&shape, &[&dense, &one]).expect("broadcasts").form().inputs[1], Access::Constant);
    }

    #[test]
    fn no_elements_are_no_launch_and_a_wrong_shape_is_an_error() {
        let dense = layout(&[0, 3], &[3, 1]);
        let walk = Walk::new(&Shape::from(&[0, 3][..]), &[&dense]).expect("fits");
        assert_eq!(walk.elems(), 0);
        let wide = layout(&[5], &[1]);
        assert_eq!(Walk::new(&Shape::from(&[2, 3][..]), &[&wide]).expect_err("5 is not 3").kind(), ErrorKind::Shape);
    }
}
