//! From one device to another.

use remat_runtime::Device;
use remat_types::Result;

use crate::{Tensor, autodiff};

impl Tensor {
    /// A copy on another device; the same tensor if it is there already. Cotangents are copied back. Errors: Closed.
    #[track_caller]
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        let home = self.device();
        if *device == home {
            return Ok(self.clone());
        }
        let copy = Tensor::from_handle(device.channel().copy_from(&self.handle)?);
        let back = move |dy: &[Option<Tensor>]| {
            dy.iter().map(|dy| dy.as_ref().map(|dy| dy.to_device(&home)).transpose()).collect()
        };
        Ok(autodiff::custom("to_device", &[self], vec![copy], back)?.swap_remove(0))
    }
}
