//! Policies of eviction on a recorded program.

use remat::prelude::*;
use remat::runtime::{PolicyKind, simulate};

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    device.channel().start_recording()?;
    let w = Tensor::full(&device, [128, 128], DType::F32, 0.5)?.requires_grad()?;
    let mut x = w.clone();
    for _ in 0..30 {
        x = x.sin()?;
    }
    x.mean()?.backward()?;
    let recording = device.channel().stop_recording()?;

    for policy in [PolicyKind::Window, PolicyKind::Dtr, PolicyKind::Upstream] {
        let run = simulate(&recording, policy, Some(1 << 20))?;
        assert!(run.recomputed_ops > 0 && run.peak_bytes <= 1 << 20);
    }
    Ok(())
}
