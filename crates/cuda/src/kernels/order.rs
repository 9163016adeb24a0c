//! Order along an axis: sorted lanes, their largest elements, and single ones by rank.

use remat_ops::Op;
use remat_ops::order::{OrderFn, OrderStatistic, Sort, TopK};
use remat_types::{DType, Result};

use super::movement::bits_type;
use super::plan::{Builder, Call, Operands, Plan, THREADS, Value, grid};
use super::sorting::Sorting;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    if let Some(op) = any.downcast_ref::<Sort>() {
        return Ok(Some(sort(op, o)));
    }
    if let Some(op) = any.downcast_ref::<TopK>() {
        return Ok(Some(top_k(op, o)));
    }
    Ok(any.downcast_ref::<OrderStatistic>().map(|op| statistic(op, o)))
}

/// The lanes of the input along an axis: `[outer, n, inner]`.
struct Lanes {
    dtype: DType,
    n: u64,
    inner: u64,
    lanes: u64,
}

impl Lanes {
    fn of(o: &Operands<'_>, axis: usize) -> Lanes {
        let shape = o.shape(0);
        let inner = shape[axis + 1..].iter().product::<usize>();
        let outer = shape[..axis].iter().product::<usize>();
        Lanes {
            dtype: o.x[0].dtype,
            n: shape[axis] as u64,
            inner: inner as u64,
            lanes: outer.saturating_mul(inner) as u64,
        }
    }

    fn bits(&self) -> u32 {
        8 * self.dtype.size_bytes() as u32
    }

    fn sorting(&self) -> Sorting {
        Sorting::new(self.lanes, self.n, self.bits(), 0)
    }

    /// The function from the bits of an element to its key: smaller for a smaller one, the largest for NaN.
    fn key_of(&self, key: &str) -> String {
        let bits = bits_type(self.dtype);
        let sign = format!("({bits})1 << {}", self.bits() - 1);
        // the bits of infinity: what is above them without a sign is NaN
        let infinity = match self.dtype {
            DType::F16 => "0x7c00",
            DType::BF16 => "0x7f80",
            DType::F32 => "0x7f800000",
            _ => "0x7ff0000000000000ull",
        };
        let body = match self.dtype {
            d if d.is_float() => format!(
                "const {bits} sign = {sign}, size = x & ({bits})~sign;\n\
                 if (size > {infinity}) return ({bits})~({bits})0;\n\
                 return size == 0 || x == size ? size | sign : ({bits})~x;"
            ),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => format!("return ({bits})(x ^ ({sign}));"),
            _ => "return x;".to_owned(),
        };
        format!("__device__ __forceinline__ {key} key_of({bits} x) {{\n{body}\n}}\n")
    }

    /// Writes the keys, of the opposite order if `turned`, lane by lane.
    fn keys(&self, sorting: &Sorting, turned: bool) -> Option<Call> {
        let (bits, key) = (bits_type(self.dtype), sorting.key());
        let mut b = Builder::new("order_keys");
        b.functions(&self.key_of(key));
        b.parameter(format!("const {bits} *x0"), Value::X(0));
        b.parameter(format!("{key} *keys"), sorting.keys());
        self.declare(&mut b);
        let all = if turned { format!("({key})({bits})~({bits})0") } else { "0".to_owned() };
        let body = format!(
            "const u64 row = i / inner, outer = row / extent, place = row - outer * extent;\n\
             keys[(outer * inner + (i - row * inner)) * extent + place] = key_of(x0[i]) ^ {all};\n"
        );
        b.each(self.lanes * self.n, &body)
    }

    fn declare(&self, b: &mut Builder) {
        b.u64("extent", self.n);
        b.u64("inner", self.inner);
    }

    /// Writes the elements at places of the order: of the output's `[outer, m, inner]` the j-th of a lane is that of
    /// `rank(lane, j)`, a place in the lane.
    fn write(&self, o: &Operands<'_>, mut b: Builder, m: u64, rank: &str) -> Option<Call> {
        let bits = bits_type(self.dtype);
        b.parameter(format!("const {bits} *x0"), Value::X(0));
        b.parameter(format!("{bits} *y0"), Value::Y(0));
        b.y(1, DType::I64);
        self.declare(&mut b);
        b.u64("m", m);
        let body = format!(
            "const u64 row = i / inner, outer = row / m, j = row - outer * m, c = i - row * inner;\n\
             const u64 lane = outer * inner + c, at = {rank};\n\
             y0[i] = x0[(outer * extent + at) * inner + c];\ny1[i] = (i64)at;\n"
        );
        b.each(o.elems(0), &body)
    }
}

/// A kernel's parameter for the order of a sorting.
fn order(b: &mut Builder, sorting: &Sorting) {
    b.parameter(format!("const {} *order", sorting.place()), sorting.order());
}

fn sort(op: &Sort, o: &Operands<'_>) -> Plan {
    if o.elems(0) == 0 {
        return Plan::default();
    }
    let lanes = Lanes::of(o, op.axis);
    let sorting = lanes.sorting();
    let mut plan = Plan { workspace: sorting.end(), ..Plan::default() };
    plan.calls.extend(lanes.keys(&sorting, op.descending));
    plan.calls.extend(sorting.calls());
    let mut b = Builder::new("sort");
    order(&mut b, &sorting);
    plan.calls.extend(lanes.write(o, b, lanes.n, "order[lane * extent + j]"));
    plan
}

/// The first of the sorted ones; out of order those are sorted again, by their places.
fn top_k(op: &TopK, o: &Operands<'_>) -> Plan {
    if o.elems(0) == 0 {
        return Plan::default();
    }
    let (lanes, k) = (Lanes::of(o, op.axis), op.k as u64);
    let sorting = lanes.sorting();
    let mut plan = Plan { workspace: sorting.end(), ..Plan::default() };
    plan.calls.extend(lanes.keys(&sorting, op.largest));
    plan.calls.extend(sorting.calls());
    if op.sorted {
        let mut b = Builder::new("top_k");
        order(&mut b, &sorting);
        plan.calls.extend(lanes.write(o, b, k, "order[lane * extent + j]"));
        return plan;
    }
    let places = Sorting::new(lanes.lanes, k, Sorting::bits_of(lanes.n - 1), sorting.end());
    let mut b = Builder::new("top_k_places");
    order(&mut b, &sorting);
    b.parameter(format!("{} *keys", places.key()), places.keys());
    b.u64("extent", lanes.n);
    b.u64("m", k);
    let body = format!("keys[i] = ({})order[i / m * extent + i % m];\n", places.key());
    plan.calls.extend(b.each(lanes.lanes * k, &body));
    plan.calls.extend(places.calls());
    plan.workspace = places.end();
    let mut b = Builder::new("top_k");
    b.parameter(format!("const {} *places", places.key()), places.sorted());
    plan.calls.extend(lanes.write(o, b, k, "places[lane * m + j]"));
    plan
}

fn statistic(op: &OrderStatistic, o: &Operands<'_>) -> Plan {
    if o.elems(0) == 0 {
        return Plan::default();
    }
    let lanes = Lanes::of(o, op.axis);
    let sorting = lanes.sorting();
    let mut plan = Plan { workspace: sorting.end(), ..Plan::default() };
    plan.calls.extend(lanes.keys(&sorting, false));
    plan.calls.extend(sorting.calls());
    let mut b = Builder::new("order_statistic");
    order(&mut b, &sorting);
    b.parameter(format!("const {} *keys", sorting.key()), sorting.sorted());
    b.u64("k", op.k as u64);
    let bits = bits_type(lanes.dtype);
    // numbers before the first NaN, whose key is the largest
    let numbers = match lanes.dtype.is_float() {
        true => format!("first_from(keys + lane * extent, extent, ({bits})~({bits})0)"),
        false => "extent".to_owned(),
    };
    b.functions(&format!(
        "__device__ __forceinline__ u64 first_from(const {key} *keys, u64 n, {key} least) {{\nu64 first = 0;\n\
         while (n > 0) {{\nconst u64 half = n / 2;\nif (keys[first + half] < least) {{\nfirst += half + 1;\n\
         n -= half + 1;\n}} \
         else n = half;\n}}\nreturn first;\n}}\n\
         __device__ __forceinline__ u64 middle(u64 n, u64 numbers, bool passes) {{\n\
         if (passes) return numbers == 0 ? 0 : (numbers - 1) / 2;\nreturn numbers < n ? numbers : (n - 1) / 2;\n}}\n",
        key = sorting.key()
    ));
    let rank = match op.f {
        OrderFn::Kth => "k".to_owned(),
        OrderFn::Median => format!("middle(extent, {numbers}, false)"),
        OrderFn::NanMedian => format!("middle(extent, {numbers}, true)"),
        OrderFn::Mode => {
            let ranks = Value::Workspace(sorting.end());
            plan.calls.push(mode(&lanes, &sorting, ranks));
            plan.workspace = sorting.end().saturating_add((lanes.lanes as usize).saturating_mul(size_of::<u64>()));
            b.parameter("const u64 *ranks", ranks);
            "ranks[lane]".to_owned()
        }
    };
    plan.calls.extend(lanes.write(o, b, 1, &format!("order[lane * extent + {rank}]")));
    plan
}

/// The last rank of the first of the longest runs of equal keys, of each lane.
fn mode(lanes: &Lanes, sorting: &Sorting, ranks: Value) -> Call {
    let mut b = Builder::new("mode");
    b.parameter(format!("const {} *sorted", sorting.key()), sorting.sorted());
    b.parameter("u64 *ranks", ranks);
    b.u64("extent", lanes.n);
    let body = format!(
        "__shared__ u64 lengths[{THREADS}], lasts[{THREADS}];\n\
         const auto *keys = sorted + (u64)blockIdx.x * extent;\nu64 length = 0, last = 0;\n\
         for (u64 i = threadIdx.x; i < extent; i += blockDim.x) {{\n\
         if (i > 0 && keys[i - 1] == keys[i]) continue;\n\
         u64 end = i + 1, rest = extent - end;\n\
         while (rest > 0) {{\nconst u64 half = rest / 2;\n\
         if (keys[end + half] == keys[i]) {{\nend += half + 1;\nrest -= half + 1;\n}} else rest = half;\n}}\n\
         if (end - i > length) {{\nlength = end - i;\nlast = end - 1;\n}}\n}}\n\
         lengths[threadIdx.x] = length;\nlasts[threadIdx.x] = last;\n\
         for (int width = {THREADS} / 2; width > 0; width /= 2) {{\n__syncthreads();\n\
         if (threadIdx.x < width) {{\n\
         const u64 other = lengths[threadIdx.x + width], at = lasts[threadIdx.x + width];\n\
         if (other > lengths[threadIdx.x] || (other == lengths[threadIdx.x] && at < lasts[threadIdx.x])) {{\n\
         lengths[threadIdx.x] = other;\nlasts[threadIdx.x] = at;\n}}\n}}\n}}\n\
         if (threadIdx.x == 0) ranks[blockIdx.x] = lasts[0];\n"
    );
    b.build(grid(lanes.lanes, THREADS), &body)
}
