//! An error inside a layer names the line of the program that called the layer, and the layer's path.

use remat_nn::loss::{cross_entropy, mse};
use remat_nn::{Embedding, InitCx, Layer, Linear, Module, Reduction, Relu, Sequential};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, compile};
use remat_types::{DType, Error, ErrorKind, HostTensor, Result};

fn device() -> Device {
    Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("a device")
}

/// A layer of a program's own.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Block {
    first: Linear,
    rest: Sequential,
}

/// The line of the call within [`Block::forward`] that may fail.
const FIRST: u32 = line!() + 4;

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.first.forward(x)?;
        self.rest.forward(&y)
    }
}

fn block(d: &Device) -> Block {
    let cx = &mut InitCx::new(d, 1);
    let mut linear = |x, y| Linear::new(cx, x, y).expect("fits");
    let block = Block { first: linear(2, 3), rest: Sequential::new().then(Relu).then(linear(4, 4)) };
    block.name_scopes("block");
    block
}

#[track_caller]
fn expect(e: &Error, kind: ErrorKind, line: u32, scope: Option<&str>) {
    let site = e.call_site().unwrap_or_else(|| panic!("no place: {e}"));
    assert!(site.file().ends_with("places.rs"), "{e}");
    assert_eq!((e.kind(), site.line(), e.scope()), (kind, line, scope), "{e}");
}

#[test]
fn an_error_of_shapes_names_the_users_line_and_the_layer() {
    let d = device();
    let net = block(&d);
    let zeros = |n| Tensor::zeros(&d, [2, n], DType::F32).expect("fits");
    // a layer's own line is the user's, and within a sequence the line that called the sequence
    expect(&net.forward(&zeros(5)).expect_err("5 is not 2"), ErrorKind::Shape, FIRST, Some("block.first"));
    let e = net.forward(&zeros(2)).expect_err("3 is not 4");
    expect(&e, ErrorKind::Shape, FIRST + 1, Some("block.rest.1"));
    assert!(e.to_string().contains("(in block.rest.1, at "), "{e}");
    // checks that no operator makes
    let (x, labels) = (zeros(3), Tensor::zeros(&d, [7], DType::I64).expect("fits"));
    let (line, e) = (line!(), cross_entropy(&x, &labels).expect_err("7 labels of 2"));
    expect(&e, ErrorKind::Shape, line, Some("cross_entropy"));
    let half = x.cast(DType::F16).expect("a cast");
    let (line, e) = (line!(), mse(&x, &half, Reduction::Mean).expect_err("two types"));
    expect(&e, ErrorKind::DType, line, Some("mse"));
    // and behind it the program is in no layer
    let (line, e) = (line!(), x.matmul(&x).expect_err("3 is not 2"));
    expect(&e, ErrorKind::Shape, line, None);
}

#[test]
fn what_fails_as_it_runs_names_them_too_forward_backward_and_compiled() {
    let d = device();
    let table = Embedding::new(&mut InitCx::new(&d, 1), 4, 3).expect("fits");
    table.name_scopes("table");
    let index = Tensor::new(&d, &[9i64], [1]).expect("fits");
    let (line, y) = (line!(), table.forward(&index).expect("queued"));
    expect(&y.to_host().expect_err("row 9 of 4"), ErrorKind::Index, line, Some("table"));

    // through a layer that calls others
    let net = Sequential::new().then(table);
    let (line, y) = (line!(), net.forward(&index).expect("queued"));
    expect(&y.to_host().expect_err("row 9 of 4"), ErrorKind::Index, line, Some("table"));

    // The gradient fails with the loss, of one step; it is told by whoever asks first.
    let x = Tensor::from_host(&d, &HostTensor::zeros(DType::F32, [1, 3]).expect("fits")).expect("fits");
    let x = x.requires_grad().expect("a float");
    let held = d.channel().pause().expect("open");
    let (line, loss) = (line!(), cross_entropy(&x, &index).expect("queued"));
    loss.backward().expect("queued");
    drop(held);
    let e = x.grad().expect("queued").to_host().expect_err("class 9 of 3");
    expect(&e, ErrorKind::Index, line, Some("cross_entropy"));

    let mut line = 0;
    let mut f = compile(&d, |x: &[Tensor]| {
        line = line!() + 1;
        Ok(vec![net.forward(&x[0])?])
    });
    let e = f.call(&[&index]).and_then(|y| y[0].to_host()).expect_err("row 9 of 4");
    drop(f);
    assert!(e.to_string().contains("in table, at "), "{e}");
    assert!(e.to_string().contains(&format!("places.rs:{line}")), "{e}");
}
