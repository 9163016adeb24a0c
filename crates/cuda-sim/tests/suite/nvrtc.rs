//! Kernels of our own, compiled by NVRTC where `REMAT_CUDA_LIBRARIES` names the folder of its library (`libnvrtc.so.12` of the wheel
//! nvidia-cuda-nvrtc-cu12 12.9.86). Without it the tests say so and pass: the committed fixtures are the same texts.
//!
//! NVRTC opens `libcuda.so.1` if there is one, and crashes on one without `cuGetExportTable`. Nothing here provides one.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use crate::common::{f32s, params, put_f32s, run, shape, values};
use libloading::{Library, Symbol};
use remat_cuda_sim::{Memory, Program};

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Handle,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Handle) -> c_int;

/// The library, or `None` with a line that says why.
fn nvrtc() -> Option<Library> {
    let Some(folder) = std::env::var_os("REMAT_CUDA_LIBRARIES") else {
        println!("skipped: REMAT_CUDA_LIBRARIES names no folder with libnvrtc.so.12");
        return None;
    };
    let path = Path::new(&folder).join("libnvrtc.so.12");
    // SAFETY: the library's initialisers are those of NVRTC, which the user named.
    Some(unsafe { Library::new(&path) }.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// The PTX of a source.
fn compile(library: &Library, source: &str, architecture: &str) -> String {
    let options = ["--fmad=false", "--std=c++17", architecture].map(|o| CString::new(o).unwrap());
    let pointers = options.each_ref().map(|o| o.as_ptr());
    let (source, name) = (CString::new(source).unwrap(), CString::new("kernels.cu").unwrap());
    let mut program: Handle = std::ptr::null_mut();
    // SAFETY: the signatures are those of nvrtc.h, all strings end with a zero and live until the calls return, and the
    // program is destroyed once.
    unsafe {
        let create: Symbol<'_, Create> = library.get(b"nvrtcCreateProgram\0").unwrap();
        let run: Symbol<'_, Compile> = library.get(b"nvrtcCompileProgram\0").unwrap();
        let destroy: Symbol<'_, Destroy> = library.get(b"nvrtcDestroyProgram\0").unwrap();
        let none = std::ptr::null();
        assert_eq!(create(&mut program, source.as_ptr(), name.as_ptr(), 0, none, none), 0);
        let is_compiled = run(program, pointers.len() as c_int, pointers.as_ptr()) == 0;
        let text = if is_compiled { "PTX" } else { "ProgramLog" };
        let out = fetch(library, program, text);
        destroy(&mut program);
        assert!(is_compiled, "{out}");
        out
    }
}

/// A text of a program.
///
/// # Safety
/// The program lives, and `name` is that of a text in nvrtc.h.
unsafe fn fetch(library: &Library, program: Handle, name: &str) -> String {
    let mut bytes = 0;
    // SAFETY: the signatures are those of nvrtc.h; the buffer has the size that the library asks for.
    unsafe {
        let size: Symbol<'_, Size> = library.get(format!("nvrtcGet{name}Size\0").as_bytes()).unwrap();
        let text: Symbol<'_, Text> = library.get(format!("nvrtcGet{name}\0").as_bytes()).unwrap();
        assert_eq!(size(program, &mut bytes), 0);
        let mut out = vec![0u8; bytes];
        assert_eq!(text(program, out.as_mut_ptr().cast()), 0);
        String::from_utf8_lossy(&out).trim_end_matches('\0').to_string()
    }
}

fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let files = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path());
    files.filter(|p| p.extension().is_some_and(|e| e == "cu")).collect()
}

/// The lines that are not comments.
fn code(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//")).collect()
}

#[test]
fn fixtures_are_fresh_and_load_for_both_architectures() {
    let Some(library) = nvrtc() else { return };
    assert!(sources().len() >= 5);
    for path in sources() {
        let source = std::fs::read_to_string(&path).unwrap();
        let ptx = compile(&library, &source, "--gpu-architecture=compute_80");
        let committed = std::fs::read_to_string(path.with_extension("ptx")).unwrap();
        assert!(code(&ptx) == code(&committed), "{} is stale: run scripts/ptx_fixtures.py", path.display());
        for text in [ptx, compile(&library, &source, "--gpu-architecture=compute_90")] {
            Program::load(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
}

const ROUNDINGS: &str = r#"
extern "C" __global__ void roundings(const float* x, float* y) {
    float v = x[threadIdx.x];
    long long l = __float2ll_rn(v * 3.0f);
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    float back;
    asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(h));
    float r = roundf(v) + floorf(v) * ceilf(v) + truncf(v);
    y[threadIdx.x] = r + (float)l + back + fminf(v, 0.5f) + copysignf(2.0f, v) + __fsqrt_rn(fabsf(v));
}
"#;

#[test]
fn functions_of_the_compiler_have_the_hosts_bits() {
    let Some(library) = nvrtc() else { return };
    for architecture in ["--gpu-architecture=compute_80", "--gpu-architecture=compute_90"] {
        let program = Program::load(&compile(&library, ROUNDINGS, architecture)).unwrap_or_else(|e| panic!("{e}"));
        let mut memory = Memory::new();
        let mut x = values(64, 11);
        x[..6].copy_from_slice(&[0.0, -0.0, 0.5, -0.5, 1.5, -2.5]);
        let (at, y) = (put_f32s(&mut memory, &x), memory.allocate(256));
        run(&mut memory, &program, "roundings", shape(1, 64), &params(&[at, y])).unwrap_or_else(|e| panic!("{e}"));
        for (x, y) in x.iter().zip(f32s(&memory, y, 64)) {
            let rounded = x.round() + x.floor() * x.ceil() + x.trunc();
            let whole = (x * 3.0).round_ties_even();
            // f16 has 11 bits, so adding and subtracting 1.5 x 2^13 ulps of f32 rounds a value of the second binade to it
            let half = {
                let scale = f32::from_bits((x.abs().to_bits() & 0x7f80_0000).max(113 << 23)) * 12_288.0;
                if *x == 0.0 { *x } else { (x.abs() + scale - scale).copysign(*x) }
            };
            let expected = rounded + whole + half + x.min(0.5) + 2f32.copysign(*x) + x.abs().sqrt();
            assert_eq!(y, expected, "{x}");
        }
    }
}
