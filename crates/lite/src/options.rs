//! How a network is loaded and run.

use std::path::PathBuf;

use remat_graph::ir::Key;
use remat_graph::passes::PassOptions;
use remat_runtime::compile::CompileOptions;
use remat_runtime::{Device, DeviceOptions, KernelRegistry, SessionOptions, SpillTo};
use remat_types::{DType, Error, ErrorKind, HostTensor, Result};

/// Options of a [`Network`](crate::Network).
#[derive(Clone, Debug)]
pub struct Options {
    /// Compute threads of a run; unless set, the processors of the machine.
    pub threads: usize,
    /// The processors that a network computes on, numbered as the system does; any unless set. The threads that it starts have these for
    /// good, and the thread that calls [`Session::run`](crate::Session::run) while it runs. Between as many threads the system may move
    /// them; threads beyond the processors wait for each other. Linux only.
    pub affinity: Option<Vec<usize>>,
    /// Most bytes of a session with the weights that it reads; `None` for no limit.
    pub memory_budget: Option<usize>,
    /// The level of passes, 0 to 3: 0 runs the model as it is written. 2 keeps every bit of that. 3, the default, may change the
    /// last digits, as folding a batch norm into a convolution does.
    pub level: u8,
    /// F16 or BF16 to store values between operators as; sums stay f32.
    pub half: Option<DType>,
    /// The outputs that are computed, by name, in this order; all unless set.
    pub outputs: Option<Vec<String>>,
    /// Inputs that are always these tensors, by name: they are constants of the network, and no inputs of its sessions. What follows
    /// from them is computed once, and branches that they decide are gone.
    pub fixed: Vec<(String, HostTensor)>,
    /// A folder for a file that plans may copy values to, where that is cheaper than computing them again, and from which runs read
    /// weights that do not fit the budget. Of a model that is one graph.
    pub spill_to: Option<PathBuf>,
    /// The key of a file whose weights are encrypted.
    pub key: Option<Key>,
    /// The device that computes, by its name ([`Device::open`]); unless set, the calling thread does with `threads`. A device has one
    /// arena for all sessions of the network, within the budget.
    pub device: Option<String>,
    /// Kernels that the program brings, in place of the processor's. What is computed when the model is read has the operators' own.
    pub kernels: KernelRegistry,
    /// Where the memory of sessions comes from, and whether they share their workspace.
    pub session: SessionOptions,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: DeviceOptions::default().threads,
            affinity: None,
            memory_budget: None,
            level: 3,
            half: None,
            outputs: None,
            fixed: Vec::new(),
            spill_to: None,
            key: None,
            device: None,
            kernels: KernelRegistry::default(),
            session: SessionOptions::default(),
        }
    }
}

impl Options {
    /// Errors (Value): what no run can have.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::new(ErrorKind::Value, text));
        match self.half {
            None | Some(DType::F16 | DType::BF16) => {}
            Some(other) => return wrong(format!("option `half` is {other}; it must be f16 or bf16")),
        }
        if self.threads == 0 {
            return wrong("option `threads` is 0; a run takes at least one".into());
        }
        if self.level > 3 {
            return wrong(format!("option `level` is {}; there are 0 to 3", self.level));
        }
        Ok(())
    }

    /// With the device that they name. Errors: those of [`Device::open`], and of [`Options::spill`].
    pub(crate) fn opened(mut self) -> Result<Options> {
        if let Some(name) = &self.device {
            self.session.device = Some(Device::open(name, self.on_device()?)?);
        }
        Ok(self)
    }

    /// Options of a device that computes for the network. Errors: those of [`Options::spill`].
    pub(crate) fn on_device(&self) -> Result<DeviceOptions> {
        let (threads, budget_bytes, spill) = (self.threads, self.memory_budget, self.spill()?);
        let kernels = self.kernels.clone();
        Ok(DeviceOptions { threads, budget_bytes, spill, kernels, ..DeviceOptions::default() })
    }

    pub(crate) fn compile(&self) -> CompileOptions {
        let passes = PassOptions { level: self.level, half: self.half, ..PassOptions::default() };
        CompileOptions { passes, memory_budget: self.memory_budget, freeze: true, ..CompileOptions::default() }
    }

    /// Errors: Io for a folder that cannot be written to.
    pub(crate) fn spill(&self) -> Result<Option<SpillTo>> {
        // without a budget nothing is spilled, and the folder need not be measured
        self.spill_to.as_ref().filter(|_| self.memory_budget.is_some()).map(SpillTo::measure).transpose()
    }
}
