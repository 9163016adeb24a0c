//! A training run is saved and goes on.

use remat::prelude::*;
fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions::default())?;
    let mut cx = nn::InitCx::new(&device, 1);
    let net = nn::Linear::new(&mut cx, 4, 2)?;
    let mut sgd = nn::Sgd::new(net.named_parameters(), nn::SgdOptions { momentum: 0.9, ..Default::default() })?;
    let dir = std::env::temp_dir().join(format!("remat-book-{}", std::process::id()));
    let state = nn::TrainState { step: 12, ..Default::default() };
    nn::Checkpoint::save(&dir, &net, Some(&sgd), &state)?;

    let checkpoint = nn::Checkpoint::load(&dir)?;
    checkpoint.restore(&net, Some(&mut sgd))?;
    assert_eq!(checkpoint.train.step, 12);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
