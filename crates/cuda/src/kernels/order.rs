//! Sorting, selection of the largest, and elements by their rank.
//!
//! Short lanes are sorted in shared memory. Long ones are sorted in chunks, which are merged pairwise through the
//! workspace; where a few elements are selected, chunks hand on no more than that many.

use remat_ops::Op;
use remat_ops::order::{OrderFn, OrderStatistic, Sort, TopK};
use remat_types::{DType, Result};

use super::plan::{Builder, Call, Operands, Plan, THREADS, Value};
use crate::driver::Grid;
use crate::source::c_type;

/// Words of a chunk, which is sorted in shared memory.
const CHUNK: u64 = 2048;
/// The least words of a block.
const LEAST: u64 = 512;
/// The most blocks of a launch; they go on to further chunks.
const MOST_BLOCKS: u64 = 1 << 16;

/// Writes the element of a word `w` of a lane, and its place, to `to`.
const PUT: &str = "y0[to] = x0[all.at(lane, place_part(w), extent)];\ny1[to] = (i64)place_part(w);\n";

/// Writes the first `m` words of each lane of a block.
const OUTPUTS: &str = "for (u64 p = threadIdx.x; p < (last - first) * m; p += 256) {\n\
                       const u64 lane = first + p / m, to = all.at(lane, p % m, m);\n\
                       const Word w = word(lane, p % m);\n\
                       y0[to] = x0[all.at(lane, place_part(w), extent)];\ny1[to] = (i64)place_part(w);\n}\n";

/// Sorts the first `m` words of each lane of a block by their places.
const AGAIN: &str = "for (u64 p = threadIdx.x; p < ALL; p += 256) {\n\
                     words[p] = p % SIZE < m && first + p / SIZE < lanes ? place_word(words[p]) : last_word();\n}\n\
                     sort_shared<SIZE, ALL>(words);\n";

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    Ok(Some(if let Some(op) = any.downcast_ref::<Sort>() {
        Order::new(o, op.axis, op.descending).sort()
    } else if let Some(op) = any.downcast_ref::<TopK>() {
        Order::new(o, op.axis, op.largest).top(op.k as u64, op.sorted)
    } else if let Some(op) = any.downcast_ref::<OrderStatistic>() {
        Order::new(o, op.axis, false).statistic(op.f, op.k as u64)
    } else {
        return Ok(None);
    }))
}

/// Where the words of a lane come from.
#[derive(Clone, Copy)]
enum From {
    /// From elements.
    X,
    /// From words, so many for each lane, at a byte of the workspace.
    Words(usize),
}

/// The lanes of `[outer, n, inner]`.
struct Order<'o, 'a> {
    o: &'o Operands<'a>,
    dtype: DType,
    n: u64,
    inner: u64,
    lanes: u64,
    /// From the largest to the smallest.
    is_turned: bool,
}

impl<'o, 'a> Order<'o, 'a> {
    fn new(o: &'o Operands<'a>, axis: usize, is_turned: bool) -> Order<'o, 'a> {
        let shape = o.shape(0);
        let product = |d: &[usize]| d.iter().product::<usize>() as u64;
        let (outer, inner) = (product(&shape[..axis]), product(&shape[axis + 1..]));
        Order { o, dtype: o.x[0].dtype, n: shape[axis] as u64, inner, lanes: outer * inner, is_turned }
    }

    fn is_narrow(&self) -> bool {
        self.dtype.size_bytes() <= 4 && self.n <= 1 << 32
    }

    /// Bytes of so many words of each lane.
    fn bytes(&self, words: u64) -> usize {
        let size = if self.is_narrow() { 8 } else { 16 };
        ((self.lanes * words * size) as usize).next_multiple_of(256)
    }

    fn builder(&self, name: &'static str) -> (Builder, &'static str) {
        let mut b = Builder::new(name);
        b.functions(&words(self.dtype, self.is_narrow(), self.is_turned));
        b.functions(include_str!("order.cuh"));
        b.operands(self.o);
        b.u64("extent", self.n);
        b.u64("inner", self.inner);
        b.u64("lanes", self.lanes);
        (b, "const Lanes all{extent, inner};\n")
    }

    /// A block for each of `blocks`, numbered `k`.
    fn blocks(mut b: Builder, begin: &str, blocks: u64, body: &str) -> Call {
        b.u64("blocks", blocks);
        let text = format!("{begin}for (u64 k = blockIdx.x; k < blocks; k += gridDim.x) {{\n{body}}}\n");
        let grid = [blocks.clamp(1, MOST_BLOCKS) as u32, 1, 1];
        b.build(Grid { blocks: grid, threads: [THREADS, 1, 1], shared_bytes: 0 }, &text)
    }

    /// The word of number `i` of a lane.
    fn load(from: From, b: &mut Builder) -> &'static str {
        match from {
            From::X => "word_of(key_of(x0[all.at(lane, i, extent)]), i)",
            From::Words(at) => {
                b.parameter("const Word *given", Value::Workspace(at));
                "given[lane * count + i]"
            }
        }
    }

    /// Sorts `count` words of each lane, at most [`CHUNK`], and runs `finish` on them: `word(lane, i)` gives one of
    /// those of the lanes from `first` to `last`. `m` is a number for it.
    fn short(&self, name: &'static str, from: From, count: u64, m: u64, is_alone: bool, finish: &str) -> Call {
        let (mut b, begin) = self.builder(name);
        b.u64("count", count);
        b.u64("m", m);
        let load = Self::load(from, &mut b);
        let size = count.next_power_of_two().max(if is_alone { LEAST } else { 2 });
        let all = size.max(LEAST);
        let per_block = all / size;
        let body = format!(
            "const u64 first = k * {per_block}, last = least(lanes, first + {per_block});\n\
             for (u64 p = threadIdx.x; p < ALL; p += 256) {{\n\
             const u64 lane = first + p / SIZE, i = p % SIZE;\n\
             words[p] = lane < lanes && i < count ? {load} : last_word();\n}}\n\
             sort_shared<SIZE, ALL>(words);\n\
             const auto word = [&](u64 lane, u64 i) {{ return words[(lane - first) * SIZE + i]; }};\n\
             {finish}__syncthreads();\n"
        );
        let room = format!(
            "{begin}constexpr int SIZE = {size}, ALL = {all};\n\
             __shared__ __align__(16) unsigned char room[ALL * sizeof(Word)];\nWord *words = (Word *)room;\n"
        );
        Self::blocks(b, &room, self.lanes.div_ceil(per_block), &body)
    }

    /// Sorts chunks of `count` words of each lane and writes as many as `keep` of each chunk to `to`, `kept` for each
    /// lane.
    fn chunks(&self, from: From, count: u64, keep: u64, to: usize, kept: u64) -> Call {
        let (mut b, begin) = self.builder("sort_chunks");
        for (name, value) in [("count", count), ("keep", keep), ("kept", kept), ("chunks", count.div_ceil(CHUNK))] {
            b.u64(name, value);
        }
        let load = Self::load(from, &mut b);
        b.parameter("Word *to", Value::Workspace(to));
        let body = format!(
            "const u64 lane = k / chunks, first = k % chunks * {CHUNK};\n\
             for (u64 p = threadIdx.x; p < {CHUNK}; p += 256) {{\n\
             const u64 i = first + p;\nwords[p] = i < count ? {load} : last_word();\n}}\n\
             sort_shared<{CHUNK}, {CHUNK}>(words);\n\
             const u64 end = least(keep, count - first);\n\
             for (u64 p = threadIdx.x; p < end; p += 256) to[lane * kept + k % chunks * keep + p] = words[p];\n\
             __syncthreads();\n"
        );
        let room = format!(
            "{begin}__shared__ __align__(16) unsigned char room[{CHUNK} * sizeof(Word)];\nWord *words = (Word *)room;\n"
        );
        Self::blocks(b, &room, self.lanes * count.div_ceil(CHUNK), &body)
    }

    /// Merges chunks of `count` words of each lane until they are one run; gives where that is. Of the two places the
    /// first has the chunks.
    fn merged(&self, plan: &mut Plan, count: u64, mut places: [usize; 2]) -> usize {
        let mut run = CHUNK;
        while run < count {
            let (mut b, begin) = self.builder("merge");
            b.u64("count", count);
            b.u64("run", run);
            b.u64("tiles", count.div_ceil(CHUNK));
            b.parameter("const Word *from", Value::Workspace(places[0]));
            b.parameter("Word *to", Value::Workspace(places[1]));
            let body = format!(
                "const u64 lane = k / tiles * count;\n\
                 merge_tile<{CHUNK}>(from + lane, to + lane, count, run, k % tiles);\n"
            );
            plan.calls.push(Self::blocks(b, begin, self.lanes * count.div_ceil(CHUNK), &body));
            places.swap(0, 1);
            run *= 2;
        }
        places[0]
    }

    /// All words of each lane in order; gives where they are.
    fn sorted(&self, plan: &mut Plan) -> usize {
        let places = [0, self.bytes(self.n)];
        plan.workspace = plan.workspace.max(2 * self.bytes(self.n));
        plan.calls.push(self.chunks(From::X, self.n, CHUNK, places[0], self.n));
        self.merged(plan, self.n, places)
    }

    fn sort(&self) -> Plan {
        self.first(self.n)
    }

    /// The first `m` of all in order.
    fn first(&self, m: u64) -> Plan {
        let mut plan = Plan::default();
        if self.n * self.lanes * m == 0 {
            return plan;
        }
        if self.n <= CHUNK {
            plan.calls.push(self.short("sort", From::X, self.n, m, false, OUTPUTS));
            return plan;
        }
        if m > CHUNK / 2 {
            let at = self.sorted(&mut plan);
            plan.calls.extend(self.taken(at, self.n, m));
            return plan;
        }
        let at = self.selected(&mut plan, m);
        plan.calls.push(self.short("top_k", From::Words(at.0), at.1, m, false, OUTPUTS));
        plan
    }

    /// The least `m` words of each chunk of each lane, again and again, until a block can sort what is left; gives
    /// where that is, and how many there are of each lane.
    fn selected(&self, plan: &mut Plan, m: u64) -> (usize, u64) {
        let left = |count: u64| (count - 1) / CHUNK * m + ((count - 1) % CHUNK + 1).min(m);
        let mut places = [0, self.bytes(left(self.n))];
        plan.workspace = plan.workspace.max(2 * self.bytes(left(self.n)));
        let (mut from, mut count) = (From::X, self.n);
        while count > CHUNK {
            plan.calls.push(self.chunks(from, count, m, places[0], left(count)));
            (from, count) = (From::Words(places[0]), left(count));
            places.swap(0, 1);
        }
        (places[1], count)
    }

    /// Writes the first `m` of `count` words of each lane.
    fn taken(&self, at: usize, count: u64, m: u64) -> Option<Call> {
        let (mut b, begin) = self.builder("take");
        b.u64("count", count);
        b.parameter("const Word *given", Value::Workspace(at));
        b.u64("m", m);
        let body = format!(
            "{begin}const u64 lane = i / m, to = all.at(lane, i % m, m);\n\
             const Word w = given[lane * count + i % m];\n{PUT}"
        );
        b.each(self.lanes * m, &body)
    }

    fn top(&self, k: u64, is_sorted: bool) -> Plan {
        if is_sorted || self.n * self.lanes * k == 0 {
            return self.first(k);
        }
        let mut plan = Plan::default();
        let finish = &format!("{AGAIN}{OUTPUTS}");
        if self.n <= CHUNK {
            plan.calls.push(self.short("top_k", From::X, self.n, k, false, finish));
            return plan;
        }
        if k <= CHUNK / 2 {
            let (at, count) = self.selected(&mut plan, k);
            plan.calls.push(self.short("top_k", From::Words(at), count, k, false, finish));
            return plan;
        }
        let at = self.sorted(&mut plan);
        let other = if at == 0 { self.bytes(self.n) } else { 0 };
        let (mut b, _) = self.builder("top_places");
        b.u64("count", self.n);
        b.u64("m", k);
        b.parameter("const Word *given", Value::Workspace(at));
        b.parameter("Word *to", Value::Workspace(other));
        let places = "to[i] = place_word(given[i / m * count + i % m]);\n";
        plan.calls.extend(b.each(self.lanes * k, places));
        plan.calls.push(self.chunks(From::Words(other), k, CHUNK, at, k));
        let at = self.merged(&mut plan, k, [at, other]);
        plan.calls.extend(self.taken(at, k, k));
        plan
    }

    fn statistic(&self, f: OrderFn, rank: u64) -> Plan {
        let mut plan = Plan::default();
        if self.n * self.lanes == 0 {
            return plan;
        }
        let is_float = self.dtype.is_float();
        let at = "[&](u64 i) { return word(lane, i); }";
        let found = match f {
            OrderFn::Kth => "m".to_owned(),
            OrderFn::Median => format!("middle_rank<{is_float}>({at}, extent, false)"),
            OrderFn::NanMedian => format!("middle_rank<{is_float}>({at}, extent, true)"),
            OrderFn::Mode => format!("mode_rank({at}, extent)"),
        };
        let put = format!(
            "const Word w = word(lane, {found});\ny0[lane] = x0[all.at(lane, place_part(w), extent)];\n\
             y1[lane] = (i64)place_part(w);\n"
        );
        let is_mode = f == OrderFn::Mode;
        if self.n <= CHUNK {
            let finish = match is_mode {
                true => format!("{{\nconst u64 lane = first;\n{put}}}\n"),
                false => format!("for (u64 lane = first + threadIdx.x; lane < last; lane += 256) {{\n{put}}}\n"),
            };
            plan.calls.push(self.short("order_statistic", From::X, self.n, rank, is_mode, &finish));
            return plan;
        }
        let place = self.sorted(&mut plan);
        let (mut b, begin) = self.builder("order_statistic");
        b.parameter("const Word *given", Value::Workspace(place));
        b.u64("m", rank);
        let word = "const auto word = [&](u64 lane, u64 i) { return given[lane * extent + i]; };\n";
        if is_mode {
            plan.calls.push(Self::blocks(b, begin, self.lanes, &format!("const u64 lane = k;\n{word}{put}")));
        } else {
            plan.calls.extend(b.each(self.lanes, &format!("{begin}const u64 lane = i;\n{word}{put}")));
        }
        plan
    }
}

/// The types and functions that `order.cuh` uses.
fn words(dtype: DType, is_narrow: bool, is_turned: bool) -> String {
    let bits = 8 * dtype.size_bytes();
    let all = u64::MAX >> (64 - bits);
    let key = match dtype {
        DType::F16 => "float_key<u16>(x, 0x8000, 0x7c00)".to_owned(),
        DType::BF16 => "float_key<u16>(x, 0x8000, 0x7f80)".to_owned(),
        DType::F32 => "float_key<u32>(bits_of_f32(x), 0x80000000u, 0x7f800000u)".to_owned(),
        DType::F64 => "float_key<u64>(bits_of_f64(x), 0x8000000000000000ull, 0x7ff0000000000000ull)".to_owned(),
        d if d.is_signed_int() => format!("((u64)x & {all:#x}ull) ^ {:#x}ull", 1u64 << (bits - 1)),
        _ => "(u64)x".to_owned(),
    };
    let turned = if is_turned { format!("({key}) ^ {all:#x}ull") } else { key };
    let form = match is_narrow {
        true => {
            "typedef u64 Word;\n\
             __device__ __forceinline__ Word word_of(u64 key, u64 place) { return key << 32 | place; }\n\
             __device__ __forceinline__ u64 key_part(Word w) { return w >> 32; }\n\
             __device__ __forceinline__ u64 place_part(Word w) { return w & 0xffffffffu; }\n\
             __device__ __forceinline__ bool is_less(Word a, Word b) { return a < b; }\n\
             __device__ __forceinline__ Word last_word() { return ~0ull; }\n"
        }
        false => {
            "struct Word {\nu64 key, place;\n};\n\
             __device__ __forceinline__ Word word_of(u64 key, u64 place) { return Word{key, place}; }\n\
             __device__ __forceinline__ u64 key_part(Word w) { return w.key; }\n\
             __device__ __forceinline__ u64 place_part(Word w) { return w.place; }\n\
             __device__ __forceinline__ bool is_less(Word a, Word b) {\n\
             return a.key < b.key || (a.key == b.key && a.place < b.place);\n}\n\
             __device__ __forceinline__ Word last_word() { return Word{~0ull, ~0ull}; }\n"
        }
    };
    format!(
        "typedef {element} element;\nconstexpr u64 NAN_KEY = {all:#x}ull;\n{form}\
         // a word that is in the order of places\n\
         __device__ __forceinline__ Word place_word(Word w) {{ return word_of(0, place_part(w)); }}\n\
         template <typename U>\n__device__ u64 float_key(U bits, U sign, U infinity);\n\
         __device__ __forceinline__ u64 key_of(element x) {{ return {turned}; }}\n",
        element = c_type(dtype)
    )
}
