//! Modules, functions and launches.

use std::sync::Arc;

use super::error::{CudaError, ErrorCode, Outcome};
use super::queue::{Work, memory_error};
use super::streams::Stream;
use super::{Device, LoadedFunction, LoadedModule};
use crate::code::{Param, Program};
use crate::exec::{self, LaunchShape};

/// A module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Module(pub u32);

/// A kernel of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Function(pub u32);

/// Shared memory that every block may have; more must be asked for.
const SHARED_BYTES: u32 = 48 << 10;
/// Registers that a thread may have on hardware.
const MOST_REGISTERS: u32 = 255;

/// Properties of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionAttributes {
    /// The most threads of a block.
    pub most_threads: u32,
    /// Shared memory that the kernel declares.
    pub shared_bytes: u32,
    /// Dynamic shared memory that a launch may have.
    pub allowed_shared_bytes: u32,
    /// Local memory of a thread.
    pub local_bytes: u32,
    /// Words of the registers of the PTX, at most 255. On hardware their number is the compiler's choice.
    pub registers: u32,
}

impl Device {
    /// `cuModuleLoadData` with PTX. Errors: the PTX is refused, or the module's variables do not fit.
    pub fn module_load(&mut self, ptx: &str) -> Outcome<Module> {
        self.alive()?;
        let refused = |e: crate::ptx::LoadError| CudaError::new(ErrorCode::InvalidPtx, e.to_string());
        let program = Program::load(ptx).map_err(refused)?;
        let mut variables = Vec::new();
        for v in program.variables() {
            let at = self.mem_alloc(v.bytes.max(1))?;
            self.memory.fill(at, &[0], v.bytes).map_err(memory_error)?;
            self.memory.write(at, &v.initial).map_err(memory_error)?;
            variables.push(at);
        }
        self.modules.push(Some(LoadedModule { device: self.current, program, variables: Arc::new(variables) }));
        Ok(Module(self.modules.len() as u32 - 1))
    }

    /// `cuModuleUnload`: waits for all work, frees the module's variables, and ends its functions.
    pub fn module_unload(&mut self, module: Module) -> Outcome<()> {
        self.module(module)?;
        self.synchronize()?;
        let Some(loaded) = self.modules[module.0 as usize].take() else { return Ok(()) };
        loaded.variables.iter().try_for_each(|&at| self.mem_free(at))
    }

    fn module(&self, module: Module) -> Outcome<&LoadedModule> {
        match self.modules.get(module.0 as usize) {
            Some(Some(loaded)) => Ok(loaded),
            _ => Err(CudaError::new(ErrorCode::InvalidHandle, format!("module {} does not exist", module.0))),
        }
    }

    /// `cuModuleGetFunction`.
    pub fn module_get_function(&mut self, module: Module, name: &str) -> Outcome<Function> {
        self.alive()?;
        let loaded = self.module(module)?;
        let Some(kernel) = loaded.program.kernel(name) else {
            return Err(CudaError::new(ErrorCode::NotFound, format!("the module has no kernel `{name}`")));
        };
        let (device, module) = (loaded.device, module.0 as usize);
        let known = self.functions.iter().position(|f| f.module == module && f.kernel.name() == name);
        if let Some(number) = known {
            return Ok(Function(number as u32));
        }
        let (kernel, variables) = (Arc::clone(kernel), Arc::clone(&loaded.variables));
        let allowed_shared_bytes = SHARED_BYTES.saturating_sub(kernel.dynamic_shared());
        self.functions.push(LoadedFunction { device, module, kernel, variables, allowed_shared_bytes });
        Ok(Function(self.functions.len() as u32 - 1))
    }

    /// `cuModuleGetGlobal`: the address and the size of a variable.
    pub fn module_get_global(&self, module: Module, name: &str) -> Outcome<(u64, u64)> {
        self.alive()?;
        let loaded = self.module(module)?;
        let found = loaded.program.variables().iter().zip(loaded.variables.iter()).find(|(v, _)| v.name == name);
        match found {
            Some((v, &at)) => Ok((at, v.bytes)),
            None => Err(CudaError::new(ErrorCode::NotFound, format!("the module has no variable `{name}`"))),
        }
    }

    fn function(&self, function: Function) -> Outcome<&LoadedFunction> {
        let found = self.functions.get(function.0 as usize);
        match found.filter(|f| self.modules[f.module].is_some()) {
            Some(loaded) => Ok(loaded),
            None => Err(CudaError::new(ErrorCode::InvalidHandle, format!("function {} does not exist", function.0))),
        }
    }

    /// The parameters of a function, for a caller that has a pointer to each.
    pub fn function_params(&self, function: Function) -> Outcome<&[Param]> {
        Ok(self.function(function)?.kernel.params())
    }

    /// `cuFuncGetAttribute`, for all at once.
    pub fn function_attributes(&self, function: Function) -> Outcome<FunctionAttributes> {
        let LoadedFunction { kernel, allowed_shared_bytes, .. } = self.function(function)?;
        Ok(FunctionAttributes {
            most_threads: kernel.most_threads(),
            shared_bytes: kernel.shared_bytes(),
            allowed_shared_bytes: *allowed_shared_bytes,
            local_bytes: kernel.local_bytes(),
            registers: kernel.registers().min(MOST_REGISTERS),
        })
    }

    /// `cuFuncSetAttribute` of the dynamic shared memory that a launch may have. Errors: a block has not as much.
    pub fn function_allow_shared(&mut self, function: Function, bytes: u32) -> Outcome<()> {
        self.alive()?;
        let own = self.function(function)?.kernel.dynamic_shared();
        if u64::from(own) + u64::from(bytes) > u64::from(exec::MAX_SHARED_BYTES) {
            let message = format!(
                "{bytes} bytes of shared memory beside the kernel's {own}: a block has {}",
                exec::MAX_SHARED_BYTES
            );
            return Err(CudaError::new(ErrorCode::InvalidValue, message));
        }
        self.functions[function.0 as usize].allowed_shared_bytes = bytes;
        Ok(())
    }

    /// `cuLaunchKernel`, with the bytes of all parameters. Errors: the kernel does not take this shape or these parameters, needs
    /// [`Device::function_allow_shared`] first, or is of another device than the stream.
    pub fn launch_kernel(
        &mut self,
        function: Function,
        shape: LaunchShape,
        params: &[u8],
        stream: Stream,
    ) -> Outcome<()> {
        self.alive()?;
        let function = self.function(function)?.clone();
        exec::check_shape(&function.kernel, shape, params)
            .map_err(|message| CudaError::new(ErrorCode::InvalidValue, message))?;
        if shape.dynamic_shared_bytes > function.allowed_shared_bytes {
            let (asked, allowed) = (shape.dynamic_shared_bytes, function.allowed_shared_bytes);
            let message =
                format!("{asked} bytes of dynamic shared memory, and {allowed} are allowed without a request");
            return Err(CudaError::new(ErrorCode::InvalidValue, message));
        }
        if function.device != self.device_of_stream(stream)? {
            let message = format!("a kernel of device {} on a stream of another device", function.device);
            return Err(CudaError::new(ErrorCode::InvalidHandle, message));
        }
        self.submit(stream, Work::Launch { function, shape, params: Arc::new(params.to_vec()) })
    }
}
