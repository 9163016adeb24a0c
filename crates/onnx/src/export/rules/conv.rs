//! Convolutions.

use remat_ops::conv::{Conv2d, Conv2dInputGrad, ConvParams};
use remat_types::Result;

use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::{Cx, left_out};
use crate::proto::AttributeProto;

pub(super) const ROWS: &[Row] = &[row::<Conv2d>(), row::<Conv2dInputGrad>()];

/// The attributes of both operators.
fn attributes(taps: &ConvParams, kernel: &[usize]) -> Vec<AttributeProto> {
    let pads: Vec<usize> = taps.padding.begin.iter().chain(&taps.padding.end).copied().collect();
    vec![
        attr::ints("kernel_shape", kernel),
        attr::ints("strides", &taps.stride),
        attr::ints("pads", &pads),
        attr::ints("dilations", &taps.dilation),
        attr::size("group", taps.groups),
    ]
}

impl Rule for Conv2d {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, w, kernel) = (c.x(0)?, c.x(1)?, c.dims(1)?[2..].to_vec());
        Ok(vec![c.with("Conv", &[&x, &w], attributes(&self.taps, &kernel))])
    }
}

/// The transposed convolution: missing places at the end are the standard's padding of the output.
impl Rule for Conv2dInputGrad {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (dy, w, size, kernel) = (c.x(0)?, c.x(1)?, c.dims(0)?[2..].to_vec(), c.dims(1)?[2..].to_vec());
        let mut more = [0; 2];
        for a in 0..2 {
            let reach = self.taps.dilation[a] * (kernel[a] - 1) + 1;
            let whole = (size[a].max(1) - 1) * self.taps.stride[a] + reach;
            let given = self.size[a] + self.taps.padding.begin[a] + self.taps.padding.end[a];
            let missing = given.checked_sub(whole);
            more[a] = missing.ok_or_else(|| left_out("a transposed convolution that leaves out places"))?;
        }
        let mut all = attributes(&self.taps, &kernel);
        if more != [0; 2] {
            all.push(attr::ints("output_padding", &more));
        }
        Ok(vec![c.with("ConvTranspose", &[&dy, &w], all)])
    }
}
