//! Compilation of kernels at run time, by NVRTC.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::Arc;

use remat_types::{Error, ErrorKind, Result};

use super::context::Architecture;
use super::search::Search;
use super::table::{CompilerTable, Raw};
use super::{SUCCESS, Status};

/// `NVRTC_ERROR_COMPILATION`.
const WRONG_SOURCE: Status = 6;

/// The compiler. Clones are the same one.
#[derive(Clone)]
pub struct Compiler {
    table: Arc<CompilerTable>,
    version: (i32, i32),
}

/// Code that a device can load, and what is known of its kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    image: Vec<u8>,
    is_machine_code: bool,
    /// Bytes of each parameter of each kernel.
    parameters: BTreeMap<String, Vec<usize>>,
}

impl Code {
    /// Code as it was kept: PTX has a zero at its end, and `parameters` are those that [`Code::parameters`] gave.
    pub fn of_parts(image: Vec<u8>, is_machine_code: bool, parameters: BTreeMap<String, Vec<usize>>) -> Code {
        Code { image, is_machine_code, parameters }
    }

    /// PTX, with a zero at its end.
    pub fn of_ptx(image: Vec<u8>) -> Code {
        Code { parameters: declared(&image), image, is_machine_code: false }
    }

    /// The bytes that a driver loads.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// True for machine code of one architecture, false for PTX, which the driver compiles when it is loaded.
    pub fn is_machine_code(&self) -> bool {
        self.is_machine_code
    }

    /// The bytes of each parameter of a kernel. `None` for a kernel that is not there, and for one that has a parameter of
    /// another kind than a number.
    pub fn parameters(&self, kernel: &str) -> Option<&[usize]> {
        self.parameters.get(kernel).map(|p| &p[..])
    }
}

/// The parameters that PTX declares (PTX ISA, "Kernel Function Parameters").
fn declared(ptx: &[u8]) -> BTreeMap<String, Vec<usize>> {
    let text = std::str::from_utf8(ptx).unwrap_or_default();
    let size = |parameter: &str| {
        let mut words = parameter.split_whitespace().skip_while(|w| *w != ".param").skip(1);
        let bits: usize = words.next()?.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
        matches!(bits, 32 | 64).then_some(bits / 8)
    };
    let kernel = |rest: &str| {
        let (name, rest) = rest.split_once('(')?;
        let (list, _) = rest.split_once(')')?;
        let sizes: Option<Vec<usize>> = match list.trim().is_empty() {
            true => Some(Vec::new()),
            false => list.split(',').map(size).collect(),
        };
        Some((name.trim().to_owned(), sizes?))
    };
    text.split(".entry ").skip(1).filter_map(kernel).collect()
}

/// A program of the compiler's.
struct Program<'c> {
    compiler: &'c Compiler,
    raw: Raw,
}

impl Compiler {
    /// The compiler of the system. Errors (Device): there is none, with the places where it was looked for.
    pub fn open(search: &Search) -> Result<Compiler> {
        let (library, file) = search.compiler()?;
        let table = Arc::new(CompilerTable::load(library, &file)?);
        let mut version = (0, 0);
        // SAFETY: the pointers are those of variables of the right type.
        let status = unsafe { (table.version)(&mut version.0, &mut version.1) };
        let compiler = Compiler { table, version };
        compiler.check("nvrtcVersion", status)?;
        Ok(compiler)
    }

    /// Major and minor version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compiles a source to machine code of an architecture. `name` names it in messages.
    ///
    /// Products are not contracted with sums (`--fmad=false`): only an explicit `fma` is one, so that results are those of the
    /// source. Division, square root and subnormal numbers are those of IEEE 754, by default.
    ///
    /// Errors (Internal): the source is wrong, with the compiler's messages; Device: it does not know the architecture.
    pub fn machine_code(&self, name: &str, source: &str, architecture: Architecture) -> Result<Code> {
        let program = self.compile(name, source, &format!("--gpu-architecture={}", architecture.name()))?;
        let ptx = program.read("nvrtcGetPTX", self.table.ptx_bytes, self.table.ptx)?;
        let image = program.read("nvrtcGetCUBIN", self.table.code_bytes, self.table.code)?;
        Ok(Code { image, is_machine_code: true, parameters: declared(&ptx) })
    }

    /// Compiles a source to PTX, which a device of this architecture or a later one loads. Errors: as
    /// [`Compiler::machine_code`].
    pub fn ptx(&self, name: &str, source: &str, architecture: Architecture) -> Result<Code> {
        let Architecture { major, minor } = architecture;
        let program = self.compile(name, source, &format!("--gpu-architecture=compute_{major}{minor}"))?;
        program.read("nvrtcGetPTX", self.table.ptx_bytes, self.table.ptx).map(Code::of_ptx)
    }

    fn compile(&self, name: &str, source: &str, target: &str) -> Result<Program<'_>> {
        let text = |s: &str| CString::new(s).map_err(|_| Error::new(ErrorKind::Internal, "a source has a zero byte"));
        let (source, name, mut raw) = (text(source)?, text(name)?, std::ptr::null_mut());
        let none = std::ptr::null();
        // SAFETY: both texts end with a zero and are copied; there are no headers.
        let status = unsafe { (self.table.create)(&mut raw, source.as_ptr(), name.as_ptr(), 0, none, none) };
        self.check("nvrtcCreateProgram", status)?;
        let program = Program { compiler: self, raw };
        let options = [text(target)?, text("--fmad=false")?, text("--std=c++17")?];
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: the program is open, and the pointers are those of as many texts.
        match unsafe { (self.table.compile)(raw, pointers.len() as i32, pointers.as_ptr()) } {
            WRONG_SOURCE => {
                let log = program.read("nvrtcGetProgramLog", self.table.log_bytes, self.table.log)?;
                let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
                Err(Error::new(ErrorKind::Internal, format!("{name:?} does not compile: {log}")))
            }
            status => self.check(&format!("nvrtcCompileProgram ({target})"), status).map(|()| program),
        }
    }

    fn check(&self, function: &str, status: Status) -> Result<()> {
        match status {
            SUCCESS => Ok(()),
            status => Err(Error::new(ErrorKind::Device, format!("{function} failed with status {status} of NVRTC"))),
        }
    }
}

impl Program<'_> {
    /// The result that a pair of functions gives: one says its bytes, the other copies it.
    fn read(
        &self,
        function: &str,
        size: unsafe extern "C" fn(Raw, *mut usize) -> Status,
        get: unsafe extern "C" fn(Raw, *mut c_char) -> Status,
    ) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is open, and the pointer is that of a variable of the right type.
        self.compiler.check(function, unsafe { size(self.raw, &mut bytes) })?;
        let mut result = vec![0u8; bytes];
        // SAFETY: the compiler writes as many bytes as it said.
        self.compiler.check(function, unsafe { get(self.raw, result.as_mut_ptr().cast()) })?;
        Ok(result)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is open, and nothing else has the handle.
        let _ = unsafe { (self.compiler.table.destroy)(&mut self.raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler, where `REMAT_CUDA_LIBRARIES` names the folder of its library.
    fn compiler() -> Option<Compiler> {
        let Some(folder) = std::env::var_os("REMAT_CUDA_LIBRARIES") else {
            eprintln!("REMAT_CUDA_LIBRARIES names no folder: the compiler is not tested");
            return None;
        };
        Some(Compiler::open(&Search::default().first(folder)).expect("the folder has the compiler"))
    }

    const SOURCE: &str = r#"extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }"#;

    #[test]
    fn a_source_becomes_machine_code_and_ptx() {
        let Some(compiler) = compiler() else { return };
        assert!(compiler.version() >= (12, 0));
        let code = compiler.machine_code("twice", SOURCE, Architecture { major: 9, minor: 0 }).expect("compiles");
        assert_eq!(&code.image()[..4], b"\x7fELF");
        let ptx = compiler.ptx("twice", SOURCE, Architecture::OLDEST).expect("compiles");
        let text = String::from_utf8(ptx.image().to_vec()).expect("a text");
        assert!(text.contains(".entry twice") && text.contains("sm_80") && text.ends_with('\0'), "{text}");
        assert!(!text.contains(".ftz") && !text.contains(".approx"), "{text}");
    }

    #[test]
    fn products_and_sums_stay_apart_unless_the_source_joins_them() {
        let Some(compiler) = compiler() else { return };
        let kernel = |body: &str| format!("extern \"C\" __global__ void f(float *x) {{ x[0] = {body}; }}");
        let ptx = |body: &str| {
            let code = compiler.ptx("f", &kernel(body), Architecture::OLDEST).expect("compiles");
            String::from_utf8(code.image().to_vec()).expect("a text")
        };
        assert!(!ptx("x[1] * x[2] + x[3]").contains("fma"));
        assert!(ptx("__fmaf_rn(x[1], x[2], x[3])").contains("fma.rn.f32"));
    }

    #[test]
    fn a_wrong_source_is_an_error_with_the_compilers_messages() {
        let Some(compiler) = compiler() else { return };
        let e =
            compiler.machine_code("wrong", "__global__ void f() { y = 1; }", Architecture::OLDEST).expect_err("wrong");
        assert!(e.to_string().contains("identifier \"y\" is undefined"), "{e}");
        let later = Architecture { major: 99, minor: 0 };
        let e = compiler.machine_code("twice", SOURCE, later).expect_err("no such architecture");
        assert!(e.to_string().contains("sm_990"), "{e}");
    }
}
