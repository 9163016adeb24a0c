//! Images read at points between their pixels, and the gradients of that.
//!
//! A thread works out the taps of a point for many channels. For the gradient of images taps are sorted by pixel, so
//! each pixel is one thread's, which adds up in the order of the points.

use std::sync::Arc;

use remat_ops::Op;
use remat_ops::vision::{Between, Beyond, SamplePoints, SamplePointsGrad, SamplePointsSlope};
use remat_types::{DType, Error, ErrorKind, Result};

use super::optim::{real_of, vocabulary};
use super::plan::{Builder, Failure, Operands, Plan, Value};
use super::sorting::Sorting;
use crate::source::c_type;

/// Channels that share the taps that a thread works out.
const CHANNELS: u64 = 32;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    if let Some(op) = any.downcast_ref::<SamplePoints>() {
        let size = &o.shape(0)[2..];
        let way = Way { between: op.between, beyond: op.beyond, orders: &op.orders, size, images: o.shape(0)[0] };
        return Ok(Some(way.samples(o)));
    }
    if let Some(op) = any.downcast_ref::<SamplePointsGrad>() {
        let (size, images) = (&op.size[..], op.images);
        let way = Way { between: op.between, beyond: op.beyond, orders: &op.orders, size, images };
        return Ok(Some(way.gradients(o)));
    }
    let Some(op) = any.downcast_ref::<SamplePointsSlope>() else { return Ok(None) };
    let size = &o.shape(0)[2..];
    let way = Way { between: op.between, beyond: op.beyond, orders: &[], size, images: o.shape(0)[0] };
    Ok(Some(way.slopes(o)))
}

fn bad_image(images: usize) -> Option<Failure> {
    Some(Arc::new(move |_, image| Error::new(ErrorKind::Index, format!("batch names image {image} of {images}"))))
}

/// How images are read.
struct Way<'a> {
    between: Between,
    beyond: Beyond,
    orders: &'a [usize],
    /// Extents of an image.
    size: &'a [usize],
    images: usize,
}

impl Way<'_> {
    fn plane(&self) -> u64 {
        self.size.iter().product::<usize>() as u64
    }

    /// A kernel for images of a dtype, with the extents, and the statements that declare `size` and `orders`.
    fn builder(&self, name: &'static str, dtype: DType, extents: &[(&str, u64)]) -> (Builder, String) {
        let between = match self.between {
            Between::Nearest => 0,
            Between::Linear => 1,
            Between::Cubic => 2,
        };
        let beyond = match self.beyond {
            Beyond::Zeros => 0,
            Beyond::Edge => 1,
            Beyond::Reflect => 2,
            Beyond::ReflectEdge => 3,
            Beyond::Wrap => 4,
        };
        let axes = self.size.len();
        let mut b = Builder::new(name);
        b.functions(&vocabulary(dtype));
        b.functions(&format!("constexpr int AXES = {axes}, BETWEEN = {between}, BEYOND = {beyond};\n"));
        b.functions(include_str!("sample.cuh"));
        b.failure();
        extents.iter().for_each(|(name, v)| b.u64(name, *v));
        b.u64("images", self.images as u64);
        b.u64("plane", self.plane());
        let (mut sizes, mut orders) = (Vec::new(), Vec::new());
        for a in 0..axes {
            b.u64(format!("size{a}"), self.size[a] as u64);
            b.u64(format!("order{a}"), self.orders.get(a).copied().unwrap_or(0) as u64);
            sizes.push(format!("size{a}"));
            orders.push(format!("order{a}"));
        }
        let text =
            format!("const u64 size[AXES] = {{{}}}, orders[AXES] = {{{}}};\n", sizes.join(", "), orders.join(", "));
        (b, text)
    }

    fn samples(&self, o: &Operands<'_>) -> Plan {
        let [groups, channels, points] = [0, 1, 2].map(|a| o.y[0].1[a] as u64);
        let parts = channels.div_ceil(CHANNELS);
        let extents = [("channels", channels), ("points", points), ("parts", parts)];
        let (mut b, text) = self.builder("sample_points", o.y[0].0, &extents);
        b.resident(2);
        b.operands(o);
        let body = format!(
            "const u64 row = i / points, p = i - row * points, group = row / parts, part = row - group * parts;\n\
             const u64 image = (u64)x2[group];\n\
             if (image >= images) {{\nif (p == 0) refuse(failure, group, (i64)image);\ncontinue;\n}}\n{text}\
             const Taps<false> taps(x1 + (group * points + p) * AXES, size, orders);\n\
             for (u64 c = part * {CHANNELS}; c < channels && c < (part + 1) * {CHANNELS}; ++c) {{\n\
             const element *x = x0 + (image * channels + c) * plane;\nreal sum = 0;\n\
             for (int t = 0; t < TAPS; ++t)\n\
             if (taps.places[t] != NONE) sum += taps.weights[t] * up(x[taps.places[t]]);\n\
             y0[(group * channels + c) * points + p] = down(sum);\n}}\n"
        );
        let calls = if o.elems(0) == 0 { None } else { b.each(groups * parts * points, &body) };
        Plan { calls: calls.into_iter().collect(), failure: bad_image(self.images), ..Plan::default() }
    }

    fn slopes(&self, o: &Operands<'_>) -> Plan {
        let (channels, points) = (o.shape(0)[1] as u64, o.shape(1)[1] as u64);
        let (mut b, text) = self.builder("sample_slope", o.y[0].0, &[("channels", channels), ("points", points)]);
        b.operands(o);
        let body = format!(
            "const u64 group = i / points, p = i - group * points, image = (u64)x2[group];\n\
             if (image >= images) {{\nif (p == 0) refuse(failure, group, (i64)image);\ncontinue;\n}}\n{text}\
             const Taps<true> taps(x1 + i * AXES, size, orders);\nreal d[AXES] = {{}};\n\
             for (u64 c = 0; c < channels; ++c) {{\n\
             const element *x = x0 + (image * channels + c) * plane;\n\
             const real dy = up(x3[(group * channels + c) * points + p]);\n\
             for (int a = 0; a < AXES; ++a) {{\nreal sum = 0;\n\
             for (int t = 0; t < TAPS; ++t)\n\
             if (taps.places[t] != NONE) sum += taps.slopes[a][t] * up(x[taps.places[t]]);\n\
             d[a] += sum * dy;\n}}\n}}\n\
             for (int a = 0; a < AXES; ++a) y0[i * AXES + a] = down(d[a]);\n"
        );
        let calls = b.each(o.elems(0) / self.size.len().max(1) as u64, &body);
        Plan { calls: calls.into_iter().collect(), failure: bad_image(self.images), ..Plan::default() }
    }

    fn taps(&self) -> u64 {
        let along: u64 = match self.between {
            Between::Nearest => 1,
            Between::Linear => 2,
            Between::Cubic => 4,
        };
        along.pow(self.size.len() as u32)
    }

    /// The taps of all points with their pixels as keys; their order; where those of each pixel begin; and the sums.
    fn gradients(&self, o: &Operands<'_>) -> Plan {
        let mut plan = Plan { failure: bad_image(self.images), ..Plan::default() };
        if o.elems(0) == 0 {
            return plan;
        }
        let (dtype, real) = (o.x[2].dtype, c_type(real_of(o.x[2].dtype)));
        let [groups, channels, points] = [0, 1, 2].map(|a| o.shape(2)[a] as u64);
        let taps = groups.saturating_mul(points).saturating_mul(self.taps());
        let pixels = (self.images as u64).saturating_mul(self.plane());
        // what is no pixel comes after all
        let sorting = Sorting::new(1, taps, Sorting::bits_of(pixels), 0);
        let (key, place) = (sorting.key(), sorting.place());
        let weights = sorting.end();
        let starts = weights.saturating_add((taps as usize).saturating_mul(size_of::<f64>()));
        plan.workspace = starts.saturating_add((pixels as usize).saturating_add(1).saturating_mul(size_of::<u64>()));
        let extents = [("channels", channels), ("points", points)];
        let (mut b, text) = self.builder("sample_keys", dtype, &extents);
        b.x(0, o.x[0].dtype);
        b.x(1, DType::I64);
        b.parameter(format!("{key} *keys"), sorting.keys());
        b.parameter(format!("{real} *weights"), Value::Workspace(weights));
        let body = format!(
            "const u64 group = i / points, image = (u64)x1[group];\n\
             if (image >= images && i == group * points) refuse(failure, group, (i64)image);\n{text}\
             const Taps<false> taps(x0 + i * AXES, size, orders);\n\
             for (int t = 0; t < TAPS; ++t) {{\nconst bool is_pixel = image < images && taps.places[t] != NONE;\n\
             keys[i * TAPS + t] = ({key})(is_pixel ? image * plane + taps.places[t] : images * plane);\n\
             weights[i * TAPS + t] = taps.weights[t];\n}}\n"
        );
        plan.calls.extend(b.each(groups * points, &body));
        plan.calls.extend(sorting.calls());
        plan.calls.extend(super::scatter::starts(&sorting, Value::Workspace(starts), taps, pixels));
        let (mut b, _) = self.builder("sample_gradient", dtype, &extents);
        b.x(2, dtype);
        b.y(0, o.y[0].0);
        b.parameter(format!("const {place} *order"), sorting.order());
        b.parameter(format!("const {place} *starts"), Value::Workspace(starts));
        b.parameter(format!("const {real} *weights"), Value::Workspace(weights));
        let body = "const u64 row = i / plane, image = row / channels, c = row - image * channels;\n\
             const u64 pixel = image * plane + (i - row * plane);\nreal sum = 0;\n\
             for (u64 k = starts[pixel]; k < starts[pixel + 1]; ++k) {\n\
             const u64 tap = order[k], point = tap / TAPS, group = point / points;\n\
             sum += weights[tap] * up(x2[(group * channels + c) * points + (point - group * points)]);\n}\n\
             y0[i] = sum;\n";
        plan.calls.extend(b.each(o.elems(0), body));
        plan
    }
}
