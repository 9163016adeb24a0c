//! Sessions whose runs are commands of a device.

use remat_emulated::EmulatedOptions;

use super::*;
use crate::DeviceOptions;
use crate::eager::Device;

fn emulated(budget_bytes: Option<usize>) -> Device {
    let options = DeviceOptions { threads: 1, budget_bytes, ..DeviceOptions::default() };
    EmulatedOptions::default().open().and_then(|b| Device::with_backend(b, options)).expect("opens")
}

fn made_for(device: &Device, options: &ExecutableOptions) -> Arc<Executable> {
    Arc::new(Executable::for_kernels(graph(), device.kernels(), options).expect("builds"))
}

fn on(device: &Device, exe: Arc<Executable>) -> Result<Session> {
    let mut s = Session::with(exe, &SessionOptions { device: Some(device.clone()), ..SessionOptions::default() })?;
    s.set_input(0, &f32s(X0))?;
    s.set_input(1, &f32s(X1))?;
    s.set_state(0, &f32s([10.0; N]))?;
    Ok(s)
}

#[test]
fn a_session_on_a_device_gives_what_one_on_the_host_gives() {
    let device = emulated(None);
    let mut there = on(&device, made_for(&device, &ExecutableOptions::default())).expect("opens");
    let mut here = session(&SessionOptions::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let to = seen.clone();
    let note = move |v: ValueView<'_>| to.lock().expect("no panic").push(v.as_slice::<f32>().expect("f32").to_vec());
    there.on_output(1, note).expect("there");
    for runs in 1..4 {
        there.run().expect("runs");
        here.run().expect("runs");
        for j in 0..3 {
            assert_eq!(read(&mut there, j), read(&mut here, j), "output {j} of run {runs}");
        }
        let state = there.state(0).expect("there").to_vec::<f32>().expect("f32");
        assert_eq!(state, expected(runs));
        assert_eq!(seen.lock().expect("no panic").last(), Some(&state), "it was shown");
    }
    let mut own = [0u8; N * 4];
    there.run_into(&mut [None, Some(&mut own)]).expect("runs");
    assert_eq!(own.to_vec(), f32s(expected(4).try_into().expect("five")).bytes());
    there.start().expect("a thread");
    there.wait().expect("runs there");
    assert_eq!(read(&mut there, 1), expected(5));
}

#[test]
fn a_run_that_does_not_fit_the_device_s_budget_leaves_the_states() {
    let device = emulated(Some(64));
    let mut s = on(&device, made_for(&device, &ExecutableOptions::default())).expect("opens");
    assert_eq!(s.run().expect_err("two inputs in 64 bytes").kind(), ErrorKind::Budget);
    assert_eq!(s.state(0).expect("there").to_vec::<f32>().expect("f32"), [10.0; N]);
    let larger = emulated(Some(4096));
    let mut s = on(&larger, made_for(&larger, &ExecutableOptions::default())).expect("opens");
    s.run().expect("fits");
    assert!(larger.channel().stats().expect("open").peak_bytes <= 4096);
}

#[test]
fn a_session_refuses_a_device_that_its_executable_is_not_for() {
    let device = emulated(None);
    assert_value(on(&device, executable(ExecutableOptions::default())).map(|_| ()), "compiled for host");
    let parts = ExecutableOptions { parts: vec![vec![0], vec![1, 2]], ..ExecutableOptions::default() };
    assert_value(on(&device, made_for(&device, &parts)).map(|_| ()), "in parts");
    let mut s = on(&device, made_for(&device, &ExecutableOptions::default())).expect("opens");
    let made = s.executable().expect("idle").graph().nodes()[0].y[0];
    assert_value(s.on_value(made, |_| {}), "make the value an output");
}
