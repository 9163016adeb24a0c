//! Elementwise kernels over inputs of any strides, on the software device.

use remat_cuda::kernels::elementwise::kernel;
use remat_cuda::kernels::plan::Addresses;
use remat_cuda::kernels::walk::{Access, Form, Walk};
use remat_cuda::source::PRELUDE;
use remat_kernels::scalar::Expression;
use remat_ops::pointwise::{Binary, BinaryFn, Cast, Pointwise, Unary, UnaryFn, Where};
use remat_types::{DType, Layout, Shape};

use crate::rig::{Rig, compiler, ptx};

/// An input: as many random bytes as its storage has, and the elements that the function reads.
struct Given {
    dtype: DType,
    layout: Layout,
    elems: usize,
}

impl Given {
    fn new(dtype: DType, shape: &[usize], strides: &[isize], offset: usize, elems: usize) -> Given {
        let layout = Layout::new(Shape::from(shape), strides, offset).expect("a stride for each axis");
        assert!(layout.fits(elems), "{layout:?} of {elems}");
        Given { dtype, layout, elems }
    }

    /// Numbers from -4 to 4 in steps of an eighth, which all float dtypes have; of a Bool, both.
    fn storage(&self) -> Vec<u8> {
        let number = |i: usize| match self.dtype {
            DType::Bool => u64::from(i.is_multiple_of(3)),
            DType::F32 => u64::from((((i * 37) % 65) as f32 / 8.0 - 4.0).to_bits()),
            DType::BF16 => u64::from((((i * 29) % 65) as f32 / 8.0 - 4.0).to_bits() >> 16),
            _ => ((i * 31) % 101) as u64,
        };
        (0..self.elems).flat_map(|i| number(i).to_le_bytes().into_iter().take(self.dtype.size_bytes())).collect()
    }

    /// The words that it has at each index of `shape`.
    fn words(&self, shape: &Shape) -> Vec<u64> {
        let (storage, wide) = (self.storage(), self.layout.broadcast_to(shape).expect("broadcasts"));
        let size = self.dtype.size_bytes();
        let elems = shape.checked_elems().expect("few");
        let at = |i: usize| {
            let mut rest = i;
            let mut at = wide.offset() as isize;
            for axis in (0..shape.rank()).rev() {
                at += (rest % shape[axis]) as isize * wide.strides()[axis];
                rest /= shape[axis];
            }
            at as usize
        };
        let word = |at: usize| storage[at * size..(at + 1) * size].iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
        (0..elems).map(|i| word(at(i))).collect()
    }
}

/// Runs `e` over `given` on the device and compares it with the expression on the host. Gives the kernel's form.
fn check(rig: &mut Rig, e: &Expression, shape: &[usize], given: &[Given], gate: Option<u32>) -> Option<Form> {
    let compiler = compiler()?;
    let shape = Shape::from(shape);
    let layouts: Vec<&Layout> = given.iter().map(|g| &g.layout).collect();
    let walk = Walk::new(&shape, &layouts).expect("broadcasts");
    let form = walk.form();
    let call = kernel(e, &walk).expect("has a form in C").expect("elements");
    let function =
        rig.load(&ptx(&compiler, &(PRELUDE.to_owned() + &call.source))).kernel(&call.name).expect("is there");
    for (k, g) in given.iter().enumerate() {
        rig.put(k, &g.storage());
    }
    let result = e.nodes[e.results[0] as usize].dtype;
    let bytes = shape.checked_elems().expect("few") * result.size_bytes();
    let (y, word) = (given.len(), given.len() + 1);
    rig.put(y, &vec![0xcd; bytes]);
    if let Some(gate) = gate {
        rig.put(word, &gate.to_le_bytes());
    }
    let x: Vec<u64> =
        given.iter().enumerate().map(|(k, g)| rig.at(k) + (g.layout.offset() * g.dtype.size_bytes()) as u64).collect();
    let at = Addresses { x: &x, y: &[rig.at(y)], gate: gate.map_or(0, |_| rig.at(word)), ..Addresses::default() };
    rig.launch(&function, call.grid, &call.arguments(&at));
    let got = rig.get(y, bytes, "f");
    let words: Vec<Vec<u64>> = given.iter().map(|g| g.words(&shape)).collect();
    let mut want = vec![0; shape.checked_elems().expect("few")];
    e.eval(&words.iter().map(|w| &w[..]).collect::<Vec<_>>(), &mut [&mut want]);
    let want: Vec<u8> = want.iter().flat_map(|w| w.to_le_bytes().into_iter().take(result.size_bytes())).collect();
    match gate {
        Some(word) if word != 0 => assert!(got.iter().all(|b| *b == 0xcd), "a closed gate lets nothing be written"),
        _ => assert!(got == want, "{form:?} of {shape}"),
    }
    Some(form)
}

fn add(dtype: DType) -> Expression {
    Pointwise::Binary(Binary { f: BinaryFn::Add }).expression(&[dtype; 2]).expect("is defined")
}

#[test]
fn inputs_of_any_strides_give_the_bits_of_the_expression() {
    let mut rig = Rig::new();
    let f = DType::F32;
    let dense = |shape: &[usize]| {
        let strides: Vec<isize> = Layout::contiguous(Shape::from(shape)).strides().to_vec();
        Given::new(f, shape, &strides, 0, shape.iter().product())
    };
    let cases: Vec<(&[usize], [Given; 2], [Access; 2])> = vec![
        (&[5, 77], [dense(&[5, 77]), dense(&[5, 77])], [Access::Dense, Access::Dense]),
        (&[5, 77], [dense(&[5, 77]), dense(&[])], [Access::Dense, Access::Constant]),
        (&[5, 77], [dense(&[5, 77]), dense(&[77])], [Access::Dense, Access::Strided]),
        (&[5, 77], [dense(&[5, 1]), dense(&[77])], [Access::Strided, Access::Strided]),
        // transposed, flipped, every other element, and a window
        (
            &[6, 7, 8],
            [dense(&[6, 7, 8]), Given::new(f, &[6, 7, 8], &[1, 6, 42], 0, 336)],
            [Access::Dense, Access::Strided],
        ),
        (&[300], [dense(&[300]), Given::new(f, &[300], &[-1], 299, 300)], [Access::Dense, Access::Strided]),
        (&[4, 50], [Given::new(f, &[4, 50], &[100, 2], 1, 400), dense(&[4, 1])], [Access::Strided, Access::Strided]),
        (&[90], [dense(&[90]), Given::new(f, &[90], &[1], 7, 100)], [Access::Dense, Access::Dense]),
        (&[2, 1, 3, 1, 4], [dense(&[2, 1, 3, 1, 4]), dense(&[3, 1, 1])], [Access::Dense, Access::Strided]),
        (&[], [dense(&[]), dense(&[])], [Access::Dense, Access::Dense]),
    ];
    for (shape, given, inputs) in cases {
        let Some(form) = check(&mut rig, &add(f), shape, &given, None) else { return };
        assert_eq!(form.inputs.as_slice(), inputs, "{shape:?}");
    }
}

#[test]
fn other_dtypes_and_functions_of_one_and_three_inputs_run_too() {
    let mut rig = Rig::new();
    let sigmoid = Pointwise::Unary(Unary { f: UnaryFn::Sigmoid }).expression(&[DType::BF16]).expect("is defined");
    let x = Given::new(DType::BF16, &[9, 31], &[1, 9], 0, 279);
    let Some(form) = check(&mut rig, &sigmoid, &[9, 31], &[x], None) else { return };
    assert_eq!(form.rank, 2);
    let cast = Pointwise::Cast(Cast { dtype: DType::F16 }).expression(&[DType::I64]).expect("is defined");
    check(&mut rig, &cast, &[500], &[Given::new(DType::I64, &[500], &[1], 0, 500)], None);
    let choice = Pointwise::Where(Where).expression(&[DType::Bool, DType::F32, DType::F32]).expect("is defined");
    let given = [
        Given::new(DType::Bool, &[1, 40], &[40, 1], 0, 40),
        Given::new(DType::F32, &[20, 40], &[40, 1], 0, 800),
        Given::new(DType::F32, &[20, 1], &[1, 1], 0, 20),
    ];
    check(&mut rig, &choice, &[20, 40], &given, None);
}

#[test]
fn a_kernel_behind_a_closed_gate_writes_nothing() {
    let mut rig = Rig::new();
    for gate in [0, 1] {
        let x = || Given::new(DType::F32, &[70], &[1], 0, 70);
        check(&mut rig, &add(DType::F32), &[70], &[x(), x()], Some(gate));
    }
}
