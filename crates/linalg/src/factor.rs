//! Factorisations and solutions, by `faer`.

use std::fmt;

use faer::diag::DiagMut;
use faer::dyn_stack::{MemStack, StackReq};
use faer::linalg::cholesky::llt::factor as llt;
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::householder as reflect;
use faer::linalg::lu::partial_pivoting as lu;
use faer::linalg::matmul::matmul;
use faer::linalg::qr::no_pivoting::factor as qr;
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::linalg::{temp_mat_scratch, temp_mat_zeroed, triangular_solve as tri};
use faer::mat::AsMatMut;
use faer::perm::PermRef;
use faer::prelude::ReborrowMut;
use faer::traits::RealField;
use faer::{Accum, Conj, MatMut, MatRef, Par};

use crate::work;

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Pivot `at` is not positive: the matrix is not positive definite.
    NotPositiveDefinite {
        /// Row of the pivot.
        at: usize,
    },
    /// Pivot `at` is 0.
    Singular {
        /// Row of the pivot.
        at: usize,
    },
    /// It holds NaN or an infinity.
    NotFinite,
    /// The iteration did not converge.
    NoConvergence,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotPositiveDefinite { at } => {
                write!(f, "it is not positive definite: the leading minor of order {} is not positive", at + 1)
            }
            Failure::Singular { at } => write!(f, "it is singular: pivot {} is 0", at + 1),
            Failure::NotFinite => write!(f, "it holds NaN or an infinity"),
            Failure::NoConvergence => write!(f, "the iteration does not converge"),
        }
    }
}

impl std::error::Error for Failure {}

/// The numbers that factorisations take: f32 and f64. All matrices are row-major.
pub trait Factor: Copy + 'static {
    /// Workspace of [`Factor::cholesky`].
    fn cholesky_bytes(n: usize) -> usize;
    /// `l` of `a = l l^T`, of the lower triangle of `a`; 0 above. Both `n x n`.
    fn cholesky(n: usize, a: &[Self], l: &mut [Self], workspace: &mut [u8]) -> Result<(), Failure>;

    /// `x` of `a x = x_before`, where `a: n x n` is triangular (the other triangle is not read) and `x: n x k`. A 0 on the diagonal
    /// gives infinities.
    fn triangular(n: usize, k: usize, a: &[Self], x: &mut [Self], how: Triangle);

    /// Workspace of [`Factor::solve`].
    fn solve_bytes(n: usize, k: usize) -> usize;
    /// `x` of `a x = x_before`, or with `a^T` in the place of `a`: `a: n x n`, `x: n x k`.
    fn solve(n: usize, k: usize, a: &[Self], x: &mut [Self], transpose: bool, w: &mut [u8]) -> Result<(), Failure>;

    /// Workspace of [`Factor::slogdet`].
    fn slogdet_bytes(n: usize) -> usize;
    /// The sign of the determinant and the logarithm of its absolute value; 0 and minus infinity for a singular matrix.
    fn slogdet(n: usize, a: &[Self], workspace: &mut [u8]) -> (Self, Self);

    /// Workspace of [`Factor::qr`].
    fn qr_bytes(m: usize, n: usize, k: usize) -> usize;
    /// `a = q r` with orthonormal columns of `q: m x k` and an upper triangle `r: k x n`; `k` is `min(m, n)` or `m`.
    fn qr(m_n_k: [usize; 3], a: &[Self], q: &mut [Self], r: &mut [Self], workspace: &mut [u8]);

    /// Workspace of [`Factor::svd`].
    fn svd_bytes(m: usize, n: usize, vectors: bool) -> usize;
    /// `a = u diag(s) vt` with `s` descending; `u: m x k`, `vt: k x n`, `k = min(m, n)`, or `s` alone.
    fn svd(
        m: usize,
        n: usize,
        a: &[Self],
        s: &mut [Self],
        vectors: Option<[&mut [Self]; 2]>,
        workspace: &mut [u8],
    ) -> Result<(), Failure>;

    /// Workspace of [`Factor::pinv`].
    fn pinv_bytes(m: usize, n: usize) -> usize;
    /// The pseudoinverse of `a: m x n`, where singular values below `rcond` times the largest count as 0; `p: n x m`.
    fn pinv(m: usize, n: usize, a: &[Self], rcond: f64, p: &mut [Self], workspace: &mut [u8]) -> Result<(), Failure>;

    /// Workspace of [`Factor::eigh`].
    fn eigh_bytes(n: usize, vectors: bool) -> usize;
    /// Eigenvalues, ascending, of the symmetric matrix with the lower triangle of `a`, and eigenvectors as columns.
    fn eigh(n: usize, a: &[Self], w: &mut [Self], v: Option<&mut [Self]>, workspace: &mut [u8]) -> Result<(), Failure>;
}

/// Which triangle, and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triangle {
    /// The upper one.
    pub upper: bool,
    /// Its diagonal counts as ones.
    pub unit: bool,
    /// The transpose of it is meant.
    pub transpose: bool,
}

fn matrix<T: RealField>(stack: &mut MemStack, a: MatRef<'_, T>, then: impl FnOnce(MatMut<'_, T>, &mut MemStack)) {
    let (mut own, stack) = temp_mat_zeroed::<T, _, _>(a.nrows(), a.ncols(), stack);
    let mut own = own.as_mat_mut();
    own.copy_from(a);
    then(own, stack);
}

fn cholesky_request<T: RealField>(n: usize) -> StackReq {
    let own = llt::cholesky_in_place_scratch::<T>(n, Par::Seq, Default::default());
    StackReq::all_of(&[temp_mat_scratch::<T>(n, n), own])
}

fn cholesky<T: RealField>(n: usize, a: &[T], l: &mut [T], stack: &mut MemStack) -> Result<(), Failure> {
    let mut found = Ok(());
    matrix(stack, MatRef::from_row_major_slice(a, n, n), |mut own, stack| {
        let done = llt::cholesky_in_place(own.rb_mut(), Default::default(), Par::Seq, stack, Default::default());
        found = done
            .map(drop)
            .map_err(|llt::LltError::NonPositivePivot { index }| Failure::NotPositiveDefinite { at: index });
        let mut l = MatMut::from_row_major_slice_mut(l, n, n);
        l.fill(T::zero_impl());
        l.copy_from_triangular_lower(own);
    });
    found
}

fn triangular<T: RealField>(n: usize, k: usize, a: &[T], x: &mut [T], how: Triangle) {
    let a = MatRef::from_row_major_slice(a, n, n);
    let a = if how.transpose { a.transpose() } else { a };
    let x = MatMut::from_row_major_slice_mut(x, n, k);
    match (how.upper != how.transpose, how.unit) {
        (false, false) => tri::solve_lower_triangular_in_place(a, x, Par::Seq),
        (false, true) => tri::solve_unit_lower_triangular_in_place(a, x, Par::Seq),
        (true, false) => tri::solve_upper_triangular_in_place(a, x, Par::Seq),
        (true, true) => tri::solve_unit_upper_triangular_in_place(a, x, Par::Seq),
    }
}

/// `p a = l u` in place of the copy that `then` sees.
fn with_lu<T: RealField>(
    n: usize,
    a: &[T],
    stack: &mut MemStack,
    then: impl FnOnce(MatMut<'_, T>, PermRef<'_, usize>, usize, &mut MemStack),
) {
    matrix(stack, MatRef::from_row_major_slice(a, n, n), |mut own, stack| {
        let (mut perm, stack) = stack.make_with(n, |_| 0usize);
        let (mut inverse, stack) = stack.make_with(n, |_| 0usize);
        let (info, perm) =
            lu::factor::lu_in_place(own.rb_mut(), &mut perm, &mut inverse, Par::Seq, stack, Default::default());
        then(own, perm, info.transposition_count, stack);
    });
}

fn lu_request<T: RealField>(n: usize) -> StackReq {
    let index = StackReq::new::<usize>(n);
    let own = lu::factor::lu_in_place_scratch::<usize, T>(n, n, Par::Seq, Default::default());
    StackReq::all_of(&[temp_mat_scratch::<T>(n, n), index, index, own])
}

fn solve_request<T: RealField>(n: usize, k: usize) -> StackReq {
    let forth = lu::solve::solve_in_place_scratch::<usize, T>(n, k, Par::Seq);
    let back = lu::solve::solve_transpose_in_place_scratch::<usize, T>(n, k, Par::Seq);
    StackReq::all_of(&[lu_request::<T>(n), forth.or(back)])
}

fn solve<T: RealField>(
    n: usize,
    k: usize,
    a: &[T],
    x: &mut [T],
    transpose: bool,
    stack: &mut MemStack,
) -> Result<(), Failure> {
    let mut found = Ok(());
    with_lu(n, a, stack, |own, perm, _, stack| {
        if let Some(at) = (0..n).find(|&i| own[(i, i)] == T::zero_impl()) {
            found = Err(Failure::Singular { at });
            return;
        }
        let (own, x) = (own.as_ref(), MatMut::from_row_major_slice_mut(x, n, k));
        if transpose {
            lu::solve::solve_transpose_in_place_with_conj(own, own, perm, Conj::No, x, Par::Seq, stack);
        } else {
            lu::solve::solve_in_place_with_conj(own, own, perm, Conj::No, x, Par::Seq, stack);
        }
    });
    found
}

/// Whether the permutation is odd, and the diagonal of `u`, one after the other, to `then`.
fn determinant<T: RealField + Copy>(n: usize, a: &[T], stack: &mut MemStack, mut then: impl FnMut(T)) -> bool {
    let mut odd = false;
    with_lu(n, a, stack, |own, _, swaps, _| {
        odd = swaps % 2 == 1;
        (0..n).for_each(|i| then(own[(i, i)]));
    });
    odd
}

fn qr_request<T: RealField>(m: usize, n: usize, k: usize) -> StackReq {
    let block = qr::recommended_block_size::<T>(m, n);
    let factor = qr::qr_in_place_scratch::<T>(m, n, block, Par::Seq, Default::default());
    let apply = reflect::apply_block_householder_sequence_on_the_left_in_place_scratch::<T>(m, block, k);
    StackReq::all_of(&[
        temp_mat_scratch::<T>(m, n),
        temp_mat_scratch::<T>(block, m.min(n)),
        temp_mat_scratch::<T>(m, k),
        factor.or(apply),
    ])
}

fn qr_of<T: RealField>([m, n, k]: [usize; 3], a: &[T], q: &mut [T], r: &mut [T], stack: &mut MemStack) {
    let (block, size) = (qr::recommended_block_size::<T>(m, n), m.min(n));
    matrix(stack, MatRef::from_row_major_slice(a, m, n), |mut own, stack| {
        let (mut factor, stack) = temp_mat_zeroed::<T, _, _>(block, size, stack);
        let (mut basis, stack) = temp_mat_zeroed::<T, _, _>(m, k, stack);
        let (mut factor, mut basis) = (factor.as_mat_mut(), basis.as_mat_mut());
        qr::qr_in_place(own.rb_mut(), factor.rb_mut(), Par::Seq, stack, Default::default());
        for i in 0..k {
            basis[(i, i)] = T::one_impl();
        }
        let own = own.as_ref();
        reflect::apply_block_householder_sequence_on_the_left_in_place_with_conj(
            own.subcols(0, size),
            factor.as_ref(),
            Conj::No,
            basis.rb_mut(),
            Par::Seq,
            stack,
        );
        MatMut::from_row_major_slice_mut(q, m, k).copy_from(basis.as_ref());
        let mut r = MatMut::from_row_major_slice_mut(r, k, n);
        r.fill(T::zero_impl());
        r.subrows_mut(0, size).copy_from_triangular_upper(own.subrows(0, size));
    });
}

/// The power of 2 that a matrix whose largest magnitude is `most` is multiplied by before an iteration that squares its elements:
/// 1 within `2^-limit ..= 2^limit`, where no square over- or underflows, so that results there have the bits that they would have.
fn scale_for(most: f64, limit: i32) -> f64 {
    if most == 0.0 || (2f64.powi(-limit)..=2f64.powi(limit)).contains(&most) {
        return 1.0;
    }
    // a power of 2 that is a normal number, and so is its reciprocal
    2f64.powi(-(most.log2().floor() as i32).clamp(-1021, 1021))
}

/// Multiplies a matrix by the power of 2 that its elements call for, and gives it.
fn scaled<T: Scaled>(mut own: MatMut<'_, T>) -> f64 {
    let mut most = 0.0f64;
    for j in 0..own.ncols() {
        for i in 0..own.nrows() {
            most = most.max(own[(i, j)].magnitude());
        }
    }
    let by = scale_for(most, T::SQUARE_LIMIT);
    if by != 1.0 {
        for j in 0..own.ncols() {
            for i in 0..own.nrows() {
                own[(i, j)] = own[(i, j)].times(by);
            }
        }
    }
    by
}

/// A number that can be scaled.
trait Scaled: RealField + Copy + std::ops::Mul<Output = Self> {
    /// Squares of what is within `2^-SQUARE_LIMIT ..= 2^SQUARE_LIMIT`, and sums of many, are far from over- and underflow.
    const SQUARE_LIMIT: i32;

    fn magnitude(self) -> f64;

    /// The product, rounded once.
    fn times(self, by: f64) -> Self;
}

impl Scaled for f32 {
    const SQUARE_LIMIT: i32 = 40;

    fn magnitude(self) -> f64 {
        f64::from(self.abs())
    }

    fn times(self, by: f64) -> f32 {
        (f64::from(self) * by) as f32
    }
}

impl Scaled for f64 {
    const SQUARE_LIMIT: i32 = 400;

    fn magnitude(self) -> f64 {
        self.abs()
    }

    fn times(self, by: f64) -> f64 {
        self * by
    }
}

/// Takes the scale of a matrix from its singular values or eigenvalues.
fn unscale<T: Scaled>(values: &mut [T], by: f64) {
    if by != 1.0 {
        values.iter_mut().for_each(|v| *v = v.times(1.0 / by));
    }
}

fn svd_vectors(vectors: bool) -> ComputeSvdVectors {
    if vectors { ComputeSvdVectors::Thin } else { ComputeSvdVectors::No }
}

fn svd_request<T: RealField>(m: usize, n: usize, vectors: bool) -> StackReq {
    let (k, how) = (m.min(n), svd_vectors(vectors));
    let own = svd_scratch::<T>(m, n, how, how, Par::Seq, Default::default());
    let kept = if vectors {
        StackReq::all_of(&[temp_mat_scratch::<T>(m, k), temp_mat_scratch::<T>(n, k)])
    } else {
        StackReq::EMPTY
    };
    StackReq::all_of(&[temp_mat_scratch::<T>(m, n), temp_mat_scratch::<T>(k, 1), kept, own])
}

fn svd_of<T: Scaled>(
    m: usize,
    n: usize,
    a: &[T],
    s: &mut [T],
    vectors: Option<[&mut [T]; 2]>,
    stack: &mut MemStack,
) -> Result<(), Failure> {
    let (k, mut found) = (m.min(n), Ok(()));
    matrix(stack, MatRef::from_row_major_slice(a, m, n), |mut own, stack| {
        let by = scaled(own.rb_mut());
        let own = own.as_ref();
        let failed = |_| Failure::NoConvergence;
        let Some([u, vt]) = vectors else {
            let values = DiagMut::from_slice_mut(s);
            found = svd(own, values, None, None, Par::Seq, stack, Default::default()).map_err(failed);
            unscale(s, by);
            return;
        };
        let (mut left, stack) = temp_mat_zeroed::<T, _, _>(m, k, stack);
        let (mut right, stack) = temp_mat_zeroed::<T, _, _>(n, k, stack);
        let (mut left, mut right) = (left.as_mat_mut(), right.as_mat_mut());
        let (l, r) = (left.rb_mut(), right.rb_mut());
        let values = DiagMut::from_slice_mut(s);
        found = svd(own, values, Some(l), Some(r), Par::Seq, stack, Default::default()).map_err(failed);
        unscale(s, by);
        MatMut::from_row_major_slice_mut(u, m, k).copy_from(left.as_ref());
        MatMut::from_row_major_slice_mut(vt, k, n).copy_from(right.as_ref().transpose());
    });
    found
}

fn pinv_request<T: RealField>(m: usize, n: usize) -> StackReq {
    let k = m.min(n);
    let own = svd_scratch::<T>(m, n, ComputeSvdVectors::Thin, ComputeSvdVectors::Thin, Par::Seq, Default::default());
    StackReq::all_of(&[
        temp_mat_scratch::<T>(m, n),
        temp_mat_scratch::<T>(m, k),
        temp_mat_scratch::<T>(n, k),
        temp_mat_scratch::<T>(k, 1),
        own,
    ])
}

/// `inverse` gives the factor of a singular value, of it and the largest.
fn pinv_of<T: Scaled>(
    [m, n]: [usize; 2],
    a: &[T],
    p: &mut [T],
    stack: &mut MemStack,
    inverse: impl Fn(&T, &T) -> T,
) -> Result<(), Failure> {
    let (k, mut found) = (m.min(n), Ok(()));
    matrix(stack, MatRef::from_row_major_slice(a, m, n), |mut own, stack| {
        let by = scaled(own.rb_mut());
        let (mut u, stack) = temp_mat_zeroed::<T, _, _>(m, k, stack);
        let (mut v, stack) = temp_mat_zeroed::<T, _, _>(n, k, stack);
        let (mut s, stack) = temp_mat_zeroed::<T, _, _>(k, 1, stack);
        let (mut u, mut v, mut s) = (u.as_mat_mut(), v.as_mat_mut(), s.as_mat_mut());
        let mut values = s.rb_mut().col_mut(0);
        let diagonal = values.rb_mut().as_diagonal_mut();
        let done = svd(own.as_ref(), diagonal, Some(u.rb_mut()), Some(v.rb_mut()), Par::Seq, stack, Default::default());
        if done.is_err() {
            found = Err(Failure::NoConvergence);
            return;
        }
        for j in 0..k {
            let factor = inverse(&values[j], &values[0]);
            for i in 0..n {
                v[(i, j)] *= factor;
            }
        }
        let product = MatMut::from_row_major_slice_mut(p, n, m);
        matmul(product, Accum::Replace, v.as_ref(), u.as_ref().transpose(), T::one_impl(), Par::Seq);
        // the inverse of `by a` is that of `a` by `1 / by`
        unscale(p, 1.0 / by);
    });
    found
}

fn eigen_vectors(vectors: bool) -> ComputeEigenvectors {
    if vectors { ComputeEigenvectors::Yes } else { ComputeEigenvectors::No }
}

fn eigh_request<T: RealField>(n: usize, vectors: bool) -> StackReq {
    let own = self_adjoint_evd_scratch::<T>(n, eigen_vectors(vectors), Par::Seq, Default::default());
    let square = temp_mat_scratch::<T>(n, n);
    StackReq::all_of(&[square, square, own])
}

fn eigh_of<T: Scaled>(
    n: usize,
    a: &[T],
    w: &mut [T],
    v: Option<&mut [T]>,
    stack: &mut MemStack,
) -> Result<(), Failure> {
    let mut found = Ok(());
    matrix(stack, MatRef::from_row_major_slice(a, n, n), |mut own, stack| {
        // what is not read may be anything
        for j in 1..n {
            for i in 0..j {
                own[(i, j)] = T::zero_impl();
            }
        }
        let by = scaled(own.rb_mut());
        let own = own.as_ref();
        let failed = |_| Failure::NoConvergence;
        let values = DiagMut::from_slice_mut(w);
        let Some(v) = v else {
            found = self_adjoint_evd(own, values, None, Par::Seq, stack, Default::default()).map_err(failed);
            unscale(w, by);
            return;
        };
        let (mut vectors, stack) = temp_mat_zeroed::<T, _, _>(n, n, stack);
        let mut vectors = vectors.as_mat_mut();
        found =
            self_adjoint_evd(own, values, Some(vectors.rb_mut()), Par::Seq, stack, Default::default()).map_err(failed);
        unscale(w, by);
        MatMut::from_row_major_slice_mut(v, n, n).copy_from(vectors.as_ref());
    });
    found
}

macro_rules! factor {
    ($($t:ident)*) => { $(
        impl Factor for $t {
            fn cholesky_bytes(n: usize) -> usize {
                if n == 0 { 0 } else { work::bytes(cholesky_request::<$t>(n)) }
            }
            fn cholesky(n: usize, a: &[$t], l: &mut [$t], w: &mut [u8]) -> Result<(), Failure> {
                cholesky(n, a, l, work::stack(w))
            }
            fn triangular(n: usize, k: usize, a: &[$t], x: &mut [$t], how: Triangle) {
                triangular(n, k, a, x, how);
            }
            fn solve_bytes(n: usize, k: usize) -> usize {
                if n * k == 0 { 0 } else { work::bytes(solve_request::<$t>(n, k)) }
            }
            fn solve(n: usize, k: usize, a: &[$t], x: &mut [$t], t: bool, w: &mut [u8]) -> Result<(), Failure> {
                solve(n, k, a, x, t, work::stack(w))
            }
            fn slogdet_bytes(n: usize) -> usize {
                if n == 0 { 0 } else { work::bytes(lu_request::<$t>(n)) }
            }
            fn slogdet(n: usize, a: &[$t], w: &mut [u8]) -> ($t, $t) {
                let (mut sign, mut log) = (1.0, 0.0);
                let odd = determinant(n, a, work::stack(w), |v: $t| {
                    sign *= if v == 0.0 { 0.0 } else { 1.0f64.copysign(f64::from(v)) };
                    log += f64::from(v.abs()).ln();
                });
                (if odd { -sign } else { sign } as $t, log as $t)
            }
            fn qr_bytes(m: usize, n: usize, k: usize) -> usize {
                if m * n == 0 { 0 } else { work::bytes(qr_request::<$t>(m, n, k)) }
            }
            fn qr(sizes: [usize; 3], a: &[$t], q: &mut [$t], r: &mut [$t], w: &mut [u8]) {
                qr_of(sizes, a, q, r, work::stack(w));
            }
            fn svd_bytes(m: usize, n: usize, vectors: bool) -> usize {
                if m * n == 0 { 0 } else { work::bytes(svd_request::<$t>(m, n, vectors)) }
            }
            fn svd(
                m: usize,
                n: usize,
                a: &[$t],
                s: &mut [$t],
                vectors: Option<[&mut [$t]; 2]>,
                w: &mut [u8],
            ) -> Result<(), Failure> {
                if !a.iter().all(|v| v.is_finite()) {
                    return Err(Failure::NotFinite);
                }
                svd_of(m, n, a, s, vectors, work::stack(w))
            }
            fn pinv_bytes(m: usize, n: usize) -> usize {
                if m * n == 0 { 0 } else { work::bytes(pinv_request::<$t>(m, n)) }
            }
            fn pinv(m: usize, n: usize, a: &[$t], rcond: f64, p: &mut [$t], w: &mut [u8]) -> Result<(), Failure> {
                if !a.iter().all(|v| v.is_finite()) {
                    return Err(Failure::NotFinite);
                }
                let inverse = |s: &$t, most: &$t| if f64::from(*s) > rcond * f64::from(*most) { 1.0 / s } else { 0.0 };
                pinv_of([m, n], a, p, work::stack(w), inverse)
            }
            fn eigh_bytes(n: usize, vectors: bool) -> usize {
                if n == 0 { 0 } else { work::bytes(eigh_request::<$t>(n, vectors)) }
            }
            fn eigh(n: usize, a: &[$t], w: &mut [$t], v: Option<&mut [$t]>, workspace: &mut [u8]) -> Result<(), Failure> {
                // below the diagonal and on it: the rest is not read
                if !(0..n).all(|i| a[i * n..][..=i].iter().all(|v| v.is_finite())) {
                    return Err(Failure::NotFinite);
                }
                eigh_of(n, a, w, v, work::stack(workspace))
            }
        }
    )* };
}
factor!(f32 f64);
