//! Fourier transforms.

use remat_ops::spectral::{Fft, Irfft, Rfft};
use remat_types::{HostTensor, Result};

use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::Cx;

pub(super) const ROWS: &[Row] = &[row::<Fft>(), row::<Rfft>(), row::<Irfft>()];

/// The transform along an axis, which is an attribute before version 20. One kind of the standard divides by the length.
fn transform(c: &mut Cx<'_>, x: &Name, axis: usize, inverse: bool, onesided: bool) -> Name {
    let mut attributes = vec![attr::flag("inverse", inverse), attr::flag("onesided", onesided)];
    let y = match c.has(20) {
        true => {
            let axis = c.int(axis as i64);
            c.nodes("DFT", &[Some(x), None, Some(&axis)], attributes, 1)
        }
        false => {
            attributes.push(attr::size("axis", axis));
            c.nodes("DFT", &[Some(x)], attributes, 1)
        }
    };
    y[0].clone()
}

impl Rule for Fft {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, dtype, shape) = (c.x(0)?, c.dtype(0)?, c.dims(0)?);
        let axis = shape.len() - 2;
        let y = transform(c, &x, axis, self.inverse, false);
        if !self.inverse {
            return Ok(vec![y]);
        }
        let n = c.number(dtype, shape[axis] as f64);
        Ok(vec![c.op("Mul", &[&y, &n])])
    }
}

impl Rule for Rfft {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, rank) = (c.x(0)?, c.fact(0)?.rank());
        let x = c.unsqueeze(&x, rank)?;
        Ok(vec![transform(c, &x, rank - 1, false, true)])
    }
}

impl Rule for Irfft {
    /// All numbers of the transform, and the real part of its inverse. The later numbers are conjugates of the earlier
    /// ones.
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, dtype, shape) = (c.x(0)?, c.dtype(0)?, c.dims(0)?);
        let axis = shape.len() - 2;
        let later = self.n - (self.n / 2 + 1).min(self.n);
        let mut whole = x.clone();
        if later > 0 {
            let part = c.slice(&x, axis, 1, later)?;
            let turned = c.flip(&part, axis)?;
            let signs = HostTensor::from_f64_slice(&[1.0, -1.0], dtype, [2])?;
            let signs = c.tensor(signs);
            let conjugate = c.op("Mul", &[&turned, &signs]);
            whole = c.with("Concat", &[&x, &conjugate], vec![attr::size("axis", axis)]);
        }
        let y = transform(c, &whole, axis, true, false);
        let first = c.int(0);
        let real = c.with("Gather", &[&y, &first], vec![attr::int("axis", -1)]);
        let n = c.number(dtype, self.n as f64);
        Ok(vec![c.op("Mul", &[&real, &n])])
    }
}
