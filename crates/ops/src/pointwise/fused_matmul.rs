use std::iter::once;

use bytemuck::cast_slice_mut;
use remat_kernels::gemm::{Epilogue, GemmElement, Runs, finish_all, gemm_with};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Layout, Result, SmallVec, Storage, bf16, f16};

use super::fused::{Fused, FusedStep, Pointwise};
use super::tile::{self, Outputs, Run};
use super::{Binary, BinaryFn, Cast, Unary, UnaryFn};
use crate::args::not_taken;
use crate::linalg::{MatMul, Matrices, Sizes, for_gemm};
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, In, LayoutReq, Op, OpDef, OpRef, Sample, Var};

/// A [`MatMul`] whose elements go through the steps of a [`Fused`] while they are in the cache: a bias, an activation, a
/// residual, a cast.
///
/// Inputs: `a` and `b` of the product, then those of the steps but the first, which is the product. Every output has the
/// product's shape, and one its dtype: the product is made where the first such will be, and never kept beside it.
///
/// Results are bit for bit those of the two ops one after the other. Errors: Value if no output has the product's dtype,
/// Shape if the steps give another shape; those of the two ops.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: number, b: number, x..: any), gradient(a, b, x))]
pub struct FusedMatMul {
    /// The steps after the product, which is their first input.
    pub steps: Fused,
}

impl FusedMatMul {
    /// The facts of the product, the other inputs of the steps, and the steps.
    fn facts(&self, x: &[&Fact]) -> Result<SmallVec<[Fact; 8]>> {
        let (factors, others) = x.split_at(x.len().min(2));
        let product = MatMul {}.infer(factors)?.remove(0);
        let given: SmallVec<[&Fact; 8]> = once(&product).chain(others.iter().copied()).collect();
        let facts = self.steps.facts(&given)?;
        if let Some(y) = facts.get(given.len()).filter(|y| y.shape != product.shape) {
            let text = format!("the steps give {}, the product is {}", y.shape, product.shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        Ok(facts)
    }

    fn outputs(&self, facts: &[Fact]) -> Facts {
        let inputs = usize::from(self.steps.inputs);
        self.steps.outputs.iter().map(|k| facts[inputs + usize::from(*k)].clone()).collect()
    }

    /// The product of matrices of `T`, and the steps.
    fn run<T: Storage + GemmElement>(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let EvalCx { x, y, workspace, pool } = cx;
        let all = Matrices::<T>::of(&x[0], &x[1])?;
        let Some(shape) = y.first().map(|y| y.shape()).filter(|s| s.elems() > 0) else { return Ok(()) };
        let dtype = x[0].dtype();
        let home = y.iter().position(|y| y.dtype() == dtype).ok_or_else(|| no_home(dtype))?;
        // the product lies in an output already, as an input does whose storage was taken
        let layout = Layout::contiguous(shape.clone());
        let given: SmallVec<[In<'_>; 8]> = once(In::donated(dtype, &layout)).chain(x[2..].iter().copied()).collect();
        let run = Run::new(&self.steps, &given, shape, |i| (i == 0).then_some(home))?;
        let finish = |runs: Runs<'_, T>, scratch: &mut [u8]| {
            let mut memory = scratch;
            let mut registers = run.registers(&mut memory).expect("scratch memory is as large as the registers");
            run.begin(&mut registers);
            runs.each(|at, c, beside| {
                let range = at..at + c.len();
                let mut outputs: Outputs<'_> = beside.iter_mut().map(|y| Some(&mut **y)).collect();
                outputs.insert(home, Some(cast_slice_mut(c)));
                run.elements(range, 0, &mut outputs, &mut registers);
            });
        };
        let mut epilogue = Epilogue::new(run.scratch_bytes(), &finish);
        for (x, size) in run.read_in_order() {
            epilogue = epilogue.reading(x, size);
        }
        let mut product: &mut [T] = &mut [];
        for (j, y) in y.iter_mut().enumerate() {
            if j == home {
                product = y.slice_mut()?;
            } else {
                let size = y.dtype().size_bytes();
                epilogue = epilogue.beside(y.bytes_mut(), size);
            }
        }
        if let Some(([m, n, k], [a, b])) = all.single() {
            gemm_with(pool, m, n, k, a, b, product, &mut epilogue, workspace);
        } else {
            all.multiply(pool, product, workspace)?;
            finish_all(pool, product, &mut epilogue, workspace);
        }
        Ok(())
    }
}

fn no_home(dtype: DType) -> Error {
    Error::new(ErrorKind::Value, format!("no output is of {dtype}, as the product is"))
}

impl Op for FusedMatMul {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let y = self.outputs(&self.facts(x)?);
        match y.iter().any(|y| y.dtype == x[0].dtype) {
            true => Ok(y),
            false => Err(no_home(x[0].dtype)),
        }
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let dtype = cx.x[0].dtype();
        for_gemm!(dtype, T => self.run::<T>(cx), else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        cx.grad_via_composite(|cx, x| {
            let product = cx.apply(MatMul {}, &x[..2])?;
            let given: SmallVec<[Var; 8]> = once(product).chain(x[2..].iter().copied()).collect();
            cx.apply_all(OpRef::new(self.steps.clone()), &given)
        })
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(facts) = self.facts(x) else { return 0 };
        let Ok(sizes) = Sizes::of(&x[0].shape, &x[1].shape) else { return 0 };
        let scratch = tile::scratch_bytes(&self.steps, &facts);
        for_gemm!(x[0].dtype, T => sizes.workspace_with::<T>(threads, scratch), else 0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let Ok(facts) = self.facts(x) else { return Cost::default() };
        let given: SmallVec<[&Fact; 8]> = facts.iter().take(usize::from(self.steps.inputs)).collect();
        let product = MatMul {}.cost(&x[..2], &facts[..1]).flops;
        Cost::bytes(x, y).with_flops(product.saturating_add(self.steps.cost(&given, y).flops))
    }
}

impl OpDef for FusedMatMul {
    const NAME: &'static str = "fused_matmul";

    fn samples() -> Vec<Sample<Self>> {
        let step = |op: Pointwise, x: &[u16]| FusedStep { op, x: SmallVec::from_slice(x) };
        let bin = |f: BinaryFn| Pointwise::Binary(Binary { f });
        let un = |f: UnaryFn| Pointwise::Unary(Unary { f });
        let fused = |inputs: u16, steps: Vec<FusedStep>, outputs: &[u16]| FusedMatMul {
            steps: Fused { inputs, steps, outputs: SmallVec::from_slice(outputs) },
        };
        // tanh(a b + bias), and the sum itself
        let biased =
            |outputs: &[u16]| fused(2, vec![step(bin(BinaryFn::Add), &[0, 1]), step(un(UnaryFn::Tanh), &[2])], outputs);
        // a b + bias + residual
        let residual = || fused(3, vec![step(bin(BinaryFn::Add), &[0, 1]), step(bin(BinaryFn::Add), &[3, 2])], &[1]);
        // of another type first, and the product's later
        let casts = fused(
            1,
            vec![
                step(Pointwise::Cast(Cast { dtype: DType::F32 }), &[0]),
                step(un(UnaryFn::Neg), &[1]),
                step(un(UnaryFn::Abs), &[0]),
            ],
            &[1, 2],
        );
        let wave = |n: usize| -> Vec<f64> { (0..n).map(|i| (i as f64 * 0.37).sin() + 0.1).collect() };
        let w = |shape: &[usize]| t(&wave(shape.iter().product()), shape);
        let long = |shape: &[usize]| {
            let v: Vec<f32> = wave(shape.iter().product()).into_iter().map(|v| v as f32).collect();
            t(&v, shape)
        };
        let (a, b) = (t(&[1.0f64, 2., 3., 4., 5., 6.], [2, 3]), t(&[1.0f64, 0., -1., 2., 0.5, 1.], [3, 2]));
        let bias = || t(&[0.5f64, -7.0], [2]);
        let sums = [1.0f64, 0.0, 2.5, 9.0];
        let tanhs = sums.map(f64::tanh);
        vec![
            Sample::new(biased(&[1]), vec![a.clone(), b.clone(), bias()]).gives(vec![t(&tanhs, [2, 2])]),
            Sample::new(biased(&[0, 1]), vec![a.clone(), b.clone(), bias()])
                .gives(vec![t(&sums, [2, 2]), t(&tanhs, [2, 2])]),
            Sample::new(residual(), vec![a.clone(), b.clone(), bias(), t(&[1.0f64, 2., 3., 4.], [2, 2])])
                .gives(vec![t(&[2.0f64, 2.0, 5.5, 13.0], [2, 2])]),
            Sample::new(casts, vec![a.clone(), b.clone()])
                .gives(vec![t(&[-0.5f32, -7.0, -2.0, -16.0], [2, 2]), t(&[0.5f64, 7., 2., 16.], [2, 2])])
                .no_grad("an absolute value has a kink"),
            // joined rows, by blocks; a batch of products; few rows of many columns
            Sample::new(biased(&[0, 1]), vec![w(&[2, 17, 19]), w(&[19, 18]), w(&[18])]),
            Sample::new(residual(), vec![w(&[2, 5, 4]), w(&[2, 4, 6]), w(&[5, 1]), w(&[2, 5, 6])]),
            Sample::new(biased(&[1]), vec![long(&[3, 40, 50]), long(&[50, 1100]), long(&[1100])]).no_grad("long"),
            Sample::new(residual(), vec![long(&[3, 300]), long(&[300, 70]), long(&[]), long(&[3, 70])]).no_grad("long"),
            Sample::new(biased(&[1]), vec![t::<f64>(&[], [2, 0]), t::<f64>(&[], [0, 2]), bias()])
                .gives(vec![t(&[0.5f64, -7.0, 0.5, -7.0].map(f64::tanh), [2, 2])])
                .no_grad("nothing to sum"),
            Sample::new(biased(&[1]), vec![t::<f64>(&[], [0, 3]), b.clone(), bias()])
                .gives(vec![t::<f64>(&[], [0, 2])])
                .no_grad("empty"),
            Sample::new(biased(&[1]), vec![a.clone(), b.clone()]).fails(ErrorKind::Arity),
            Sample::new(biased(&[1]), vec![a.clone(), b.clone(), t(&[0.0f64; 12], [3, 2, 2])]).fails(ErrorKind::Shape),
            Sample::new(biased(&[1]), vec![a.clone(), a.clone(), bias()]).fails(ErrorKind::Shape),
            Sample::new(biased(&[2]), vec![a.clone(), b.clone(), bias()]).fails(ErrorKind::Value),
            Sample::new(fused(1, vec![step(Pointwise::Cast(Cast { dtype: DType::F32 }), &[0])], &[0]), vec![a, b])
                .fails(ErrorKind::Value),
        ]
    }
}
