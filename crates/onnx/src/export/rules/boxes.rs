//! Boxes that stay.

use remat_ops::vision::Nms;
use remat_types::{DType, HostTensor, Result};

use super::walk::walk;
use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::{Cx, left_out};

pub(super) const ROWS: &[Row] = &[row::<Nms>()];

/// The most boxes. Each box is compared with all others, in a row of a matrix.
const MOST_BOXES: usize = 8192;

impl Rule for Nms {
    /// Which boxes overlap, all at once; then from the first on each that is not struck out strikes out those. The standard's own
    /// suppression takes scores, knows no groups, and gives places.
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (boxes, groups, dtype, n) = (c.x(0)?, c.x(1)?, c.dtype(0)?, c.dims(0)?[0]);
        if n == 0 {
            let none = HostTensor::from_slice::<bool>(&[], [0])?;
            return Ok(vec![c.tensor(none)]);
        }
        if n > MOST_BOXES {
            return Err(left_out(format!("{n} boxes, each of which is compared with all")));
        }
        let (struck, own) = (overlaps(c, &boxes, dtype, self.most.to_f64())?, DType::Bool);
        let (rows, columns) = (c.unsqueeze(&groups, 1)?, c.unsqueeze(&groups, 0)?);
        let together = c.op("Equal", &[&rows, &columns]);
        let struck = c.op("And", &[&struck, &together]);
        let mut one = vec![false; n * n];
        (0..n).for_each(|i| one[i * n + i] = true);
        let one = c.tensor(HostTensor::from_slice(&one, [n, n])?);
        let none = c.tensor(HostTensor::from_slice(&vec![false; n], [n])?);
        let along = (&[n, n][..], 0, false);
        let y = walk(c, along, &[(none, own)], &[(struck, own), (one, own)], |e, gone, x| {
            let free = e.op("Not", &[&gone[0]]);
            // the box itself, if it is there still
            let stays = e.op("And", &[&free, &x[1]]);
            let number = e.cast(&stays, DType::U8);
            let any = e.reduce("ReduceMax", &number, &[0], true)?;
            let any = e.cast(&any, DType::Bool);
            let strikes = e.op("And", &[&any, &x[0]]);
            let next = e.op("Or", &[&gone[0], &strikes]);
            Ok((vec![(next, own)], vec![(stays, own)]))
        })?;
        let numbers = c.cast(&y[0], DType::U8);
        let any = c.reduce("ReduceMax", &numbers, &[0], false)?;
        Ok(vec![c.cast(&any, DType::Bool)])
    }
}

/// `[n, n]`: whether intersection over union is above `most`.
fn overlaps(c: &mut Cx<'_>, boxes: &Name, dtype: DType, most: f64) -> Result<Name> {
    let mut edges = Vec::new();
    for i in 0..4 {
        let place = c.int(i);
        let edge = c.with("Gather", &[boxes, &place], vec![attr::int("axis", 1)]);
        edges.push([c.unsqueeze(&edge, 1)?, c.unsqueeze(&edge, 0)?]);
    }
    let zero = c.number(dtype, 0.0);
    let mut length = |a: usize| -> [Name; 3] {
        let ([l, l2], [r, r2]) = (&edges[a], &edges[a + 2]);
        let first = c.op("Max", &[l, l2]);
        let last = c.op("Min", &[r, r2]);
        let both = c.op("Sub", &[&last, &first]);
        [c.op("Max", &[&both, &zero]), c.op("Sub", &[r, l]), c.op("Sub", &[r2, l2])]
    };
    let ([w, wa, wb], [h, ha, hb]) = (length(0), length(1));
    let both = c.op("Mul", &[&w, &h]);
    let (a, b) = (c.op("Mul", &[&wa, &ha]), c.op("Mul", &[&wb, &hb]));
    let sum = c.op("Add", &[&a, &b]);
    let whole = c.op("Sub", &[&sum, &both]);
    let share = c.op("Div", &[&both, &whole]);
    let most = c.number(DType::F64, most);
    let share = c.cast_from(&share, dtype, DType::F64);
    Ok(c.op("Greater", &[&share, &most]))
}
