//! Traversal of a module's state, under dotted names.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::divided::Divided;
use crate::{Label, Mode, Momentum, Parameter, RngCell, StatisticsGroup};

/// Receives what a traversal meets, each under its dotted name; `block.0.weight`. Every method does nothing by default.
pub trait Visitor {
    /// A parameter or buffer.
    fn parameter(&mut self, _name: &str, _p: &Parameter) {}
    /// A parameter that the ranks divide. This rank's part comes as [`Visitor::parameter`], too.
    fn divided(&mut self, _name: &str, _d: &Divided) {}
    /// A mode cell.
    fn mode(&mut self, _name: &str, _m: &Mode) {}
    /// The momentum of running statistics.
    fn momentum(&mut self, _name: &str, _m: &Momentum) {}
    /// The ranks of a norm's statistics.
    fn statistics_group(&mut self, _name: &str, _g: &StatisticsGroup) {}
    /// A source of random keys.
    fn rng(&mut self, _name: &str, _r: &RngCell) {}
    /// The label of the module called `name`.
    fn label(&mut self, _name: &str, _l: &Label) {}
}

/// A traversal under way: a visitor and the name of the place it is at.
pub struct Walk<'v> {
    visitor: &'v mut dyn Visitor,
    path: String,
}

impl<'v> Walk<'v> {
    /// A traversal that begins at a place called `name`, which may be empty.
    pub fn new(visitor: &'v mut dyn Visitor, name: &str) -> Self {
        Walk { visitor, path: name.to_owned() }
    }

    /// Visits a part of the present place.
    pub fn field<T: Visit + ?Sized>(&mut self, name: &str, part: &T) {
        let len = self.path.len();
        if len > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        part.visit(self);
        self.path.truncate(len);
    }
}

impl Walk<'_> {
    /// Visits a part under the present name, but for what lies within it under one of these dotted names, or below one: what something
    /// else stands for.
    pub fn visit_without(&mut self, part: &(impl Visit + ?Sized), left_out: &[String]) {
        let path = self.path.clone();
        let mut without = Without { visitor: &mut *self.visitor, skip: path.len(), left_out };
        part.visit(&mut Walk { visitor: &mut without, path });
    }
}

/// Passes on all visited entries, except those under certain names.
struct Without<'w> {
    visitor: &'w mut dyn Visitor,
    /// Bytes of a name that stand before the part's own.
    skip: usize,
    left_out: &'w [String],
}

impl Without<'_> {
    fn tell(&mut self, name: &str, f: impl FnOnce(&mut dyn Visitor)) {
        let own = name.get(self.skip..).unwrap_or_default().trim_start_matches('.');
        let lies_in =
            |out: &String| own.strip_prefix(out.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if !self.left_out.iter().any(lies_in) {
            f(self.visitor);
        }
    }
}

impl Visitor for Without<'_> {
    fn parameter(&mut self, name: &str, p: &Parameter) {
        self.tell(name, |v| v.parameter(name, p));
    }
    fn divided(&mut self, name: &str, d: &Divided) {
        self.tell(name, |v| v.divided(name, d));
    }
    fn mode(&mut self, name: &str, m: &Mode) {
        self.tell(name, |v| v.mode(name, m));
    }
    fn momentum(&mut self, name: &str, m: &Momentum) {
        self.tell(name, |v| v.momentum(name, m));
    }
    fn statistics_group(&mut self, name: &str, g: &StatisticsGroup) {
        self.tell(name, |v| v.statistics_group(name, g));
    }
    fn rng(&mut self, name: &str, r: &RngCell) {
        self.tell(name, |v| v.rng(name, r));
    }
    fn label(&mut self, name: &str, l: &Label) {
        self.tell(name, |v| v.label(name, l));
    }
}

/// Hands all state of `part` to the walk's visitor, but for its parameters: of each, what `parameter` visits in its place.
pub(crate) fn visit_instead(
    at: &mut Walk<'_>,
    part: &(impl Visit + ?Sized),
    parameter: impl FnMut(&mut Walk<'_>, &str, &Parameter),
) {
    part.visit(&mut Walk::new(&mut Instead { at, parameter }, ""));
}

struct Instead<'w, 'v, F> {
    at: &'w mut Walk<'v>,
    parameter: F,
}

impl<F> Instead<'_, '_, F> {
    /// Calls `f` with the visitor behind this one, and the name there.
    fn tell(&mut self, name: &str, f: impl FnOnce(&mut dyn Visitor, &str)) {
        let path = match (self.at.path.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (_, true) => self.at.path.clone(),
            _ => format!("{}.{name}", self.at.path),
        };
        f(self.at.visitor, &path);
    }
}

impl<F: FnMut(&mut Walk<'_>, &str, &Parameter)> Visitor for Instead<'_, '_, F> {
    fn parameter(&mut self, name: &str, p: &Parameter) {
        (self.parameter)(self.at, name, p);
    }
    fn divided(&mut self, name: &str, d: &Divided) {
        self.tell(name, |v, name| v.divided(name, d));
    }
    fn mode(&mut self, name: &str, m: &Mode) {
        self.tell(name, |v, name| v.mode(name, m));
    }
    fn momentum(&mut self, name: &str, m: &Momentum) {
        self.tell(name, |v, name| v.momentum(name, m));
    }
    fn statistics_group(&mut self, name: &str, g: &StatisticsGroup) {
        self.tell(name, |v, name| v.statistics_group(name, g));
    }
    fn rng(&mut self, name: &str, r: &RngCell) {
        self.tell(name, |v, name| v.rng(name, r));
    }
    fn label(&mut self, name: &str, l: &Label) {
        self.tell(name, |v, name| v.label(name, l));
    }
}

/// Something that a traversal may go through. `#[derive(Module)]` implements it for networks.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be visited for parameters",
    label = "this field's type does not implement `Visit`",
    note = "derive `Module` for it, or mark the field `#[module(skip)]` if it holds no state"
)]
pub trait Visit {
    /// Hands all state to the walk's visitor.
    fn visit(&self, at: &mut Walk<'_>);
}

impl Visit for Parameter {
    fn visit(&self, at: &mut Walk<'_>) {
        at.visitor.parameter(&at.path, self);
    }
}
impl Visit for Divided {
    fn visit(&self, at: &mut Walk<'_>) {
        at.visitor.parameter(&at.path, self.part());
        at.visitor.divided(&at.path, self);
    }
}
impl Visit for Mode {
    fn visit(&self, at: &mut Walk<'_>) {
        at.visitor.mode(&at.path, self);
    }
}
impl Visit for Momentum {
    fn visit(&self, at: &mut Walk<'_>) {
        at.visitor.momentum(&at.path, self);
    }
}
impl Visit for StatisticsGroup {
    fn visit(&self, at: &mut Walk<'_>) {
        at.visitor.statistics_group(&at.path, self);
    }
}
impl Visit for RngCell {
    fn visit(&self, at: &mut Walk<'_>) {
        at.visitor.rng(&at.path, self);
    }
}
impl Visit for Label {
    fn visit(&self, at: &mut Walk<'_>) {
        at.visitor.label(&at.path, self);
    }
}

macro_rules! stateless {
    ($($t:ty),* $(,)?) => { $(
        impl Visit for $t {
            fn visit(&self, _at: &mut Walk<'_>) {}
        }
    )* };
}
stateless! {
    (), bool, char, f32, f64, i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, str, String, &'static str,
    remat_types::Shape, remat_types::DType, remat_types::Scalar, remat_types::HostTensor, remat_runtime::Device,
    remat_ops::conv::ConvParams, remat_ops::pooling::Windows, remat_ops::loss::Reduction,
}

impl<T: ?Sized> Visit for PhantomData<T> {
    fn visit(&self, _at: &mut Walk<'_>) {}
}
impl<T: Visit + ?Sized> Visit for Box<T> {
    fn visit(&self, at: &mut Walk<'_>) {
        (**self).visit(at);
    }
}
impl<T: Visit + ?Sized> Visit for Arc<T> {
    fn visit(&self, at: &mut Walk<'_>) {
        (**self).visit(at);
    }
}
impl<T: Visit> Visit for Option<T> {
    fn visit(&self, at: &mut Walk<'_>) {
        if let Some(part) = self {
            part.visit(at);
        }
    }
}
impl<T: Visit> Visit for [T] {
    /// Parts are named by their index.
    fn visit(&self, at: &mut Walk<'_>) {
        self.iter().enumerate().for_each(|(i, part)| at.field(&i.to_string(), part));
    }
}
impl<T: Visit, const N: usize> Visit for [T; N] {
    fn visit(&self, at: &mut Walk<'_>) {
        self.as_slice().visit(at);
    }
}
impl<T: Visit> Visit for Vec<T> {
    fn visit(&self, at: &mut Walk<'_>) {
        self.as_slice().visit(at);
    }
}
impl<T: Visit> Visit for BTreeMap<String, T> {
    /// Parts are named by their keys.
    fn visit(&self, at: &mut Walk<'_>) {
        self.iter().for_each(|(name, part)| at.field(name, part));
    }
}

macro_rules! tuples {
    ($(($($t:ident $i:tt),+))*) => { $(
        impl<$($t: Visit),+> Visit for ($($t,)+) {
            /// Parts are named by their index.
            fn visit(&self, at: &mut Walk<'_>) {
                $( at.field(stringify!($i), &self.$i); )+
            }
        }
    )* };
}
tuples! {
    (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) (A 0, B 1, C 2, D 3, E 4) (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6) (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}
