//! The places in a file where a small mistake could be made, and the text of each mistake.
//!
//! Each mistake is within one expression or statement, so that a switch around it can choose between the two readings
//! at run time. Patterns, types, constants, attributes, tests, samples and the bodies of macros are left alone: a
//! switch cannot stand there, or the code there is no behaviour.

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A mistake that could be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// The innermost function around it.
    pub(crate) function: String,
    /// The class of mistake.
    pub(crate) kind: &'static str,
    /// The bytes of the expression or statement.
    pub(crate) range: Range<usize>,
    /// The text of the code.
    pub(crate) original: String,
    /// The text that the mistake puts in its place.
    pub(crate) faulty: String,
    /// True for a statement, which has no value.
    pub(crate) is_statement: bool,
}

impl Site {
    /// Both readings, with a switch that chooses by the number at run time.
    pub(crate) fn switched(&self, number: usize) -> String {
        let planted = format!("crate::planted_fault({number})");
        let Site { original, faulty, .. } = self;
        match self.is_statement {
            true => format!("if !{planted} {{ {original} }}"),
            false => format!("(if {planted} {{ {faulty} }} else {{ {original} }})"),
        }
    }
}

/// Functions whose mistakes change no result: tables for tests, and estimates of time.
const NO_BEHAVIOUR: [&str; 6] = ["samples", "cost", "flops", "schema", "fmt", "describe"];

/// Every mistake that could be made in a file.
pub(crate) fn sites(text: &str) -> Result<Vec<Site>, String> {
    let file = syn::parse_file(text).map_err(|e| e.to_string())?;
    let mut finder = Finder { text, functions: Vec::new(), found: Vec::new() };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder<'t> {
    text: &'t str,
    functions: Vec<String>,
    found: Vec<Site>,
}

impl Finder<'_> {
    fn push(&mut self, kind: &'static str, whole: Range<usize>, part: Range<usize>, by: &str) {
        let faulty = [&self.text[whole.start..part.start], by, &self.text[part.end..whole.end]].concat();
        self.site(kind, whole, faulty, false);
    }

    fn site(&mut self, kind: &'static str, range: Range<usize>, faulty: String, is_statement: bool) {
        let Some(function) = self.functions.last() else { return };
        let original = self.text[range.clone()].to_string();
        self.found.push(Site { function: function.clone(), kind, range, original, faulty, is_statement });
    }

    fn within(&mut self, signature: &syn::Signature, attributes: &[syn::Attribute], body: impl FnOnce(&mut Self)) {
        let name = signature.ident.to_string();
        if signature.constness.is_none() && !is_test(attributes) && !NO_BEHAVIOUR.contains(&name.as_str()) {
            self.functions.push(name);
            body(self);
            self.functions.pop();
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let of_tests = |list: &syn::MetaList| list.tokens.to_string() == "test";
        a.path().is_ident("test") || (a.path().is_ident("cfg") && a.meta.require_list().is_ok_and(of_tests))
    })
}

/// The class of mistake of a binary operator, and the wrong operator.
fn other_operator(op: &syn::BinOp) -> Option<(&'static str, &'static str)> {
    use syn::BinOp::*;
    Some(match op {
        Lt(_) => ("boundary", "<="),
        Le(_) => ("boundary", "<"),
        Gt(_) => ("boundary", ">="),
        Ge(_) => ("boundary", ">"),
        Eq(_) => ("comparison", "!="),
        Ne(_) => ("comparison", "=="),
        And(_) => ("condition", "||"),
        Or(_) => ("condition", "&&"),
        Add(_) => ("term", "-"),
        Sub(_) => ("term", "+"),
        Mul(_) => ("term", "+"),
        _ => return None,
    })
}

/// The class of mistake of a method, and the wrong method.
fn other_method(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name {
        "add" => ("term", "sub"),
        "sub" => ("term", "add"),
        "mul" => ("term", "add"),
        "min" => ("tie or bound", "max"),
        "max" => ("tie or bound", "min"),
        "lt" => ("tie or bound", "le"),
        "le" => ("tie or bound", "lt"),
        "gt" => ("tie or bound", "ge"),
        "ge" => ("tie or bound", "gt"),
        "floor" => ("rounding", "ceil"),
        "ceil" => ("rounding", "floor"),
        "sin" => ("wrong function", "cos"),
        "cos" => ("wrong function", "sin"),
        "first" => ("wrong end", "last"),
        "last" => ("wrong end", "first"),
        "any" => ("condition", "all"),
        "all" => ("condition", "any"),
        _ => return None,
    })
}

/// A block that only reports an error.
fn reports_error(block: &syn::Block) -> bool {
    let Some(last) = block.stmts.last() else { return false };
    let syn::Stmt::Expr(syn::Expr::Return(r), _) = last else { return false };
    let called = r.expr.as_deref().and_then(|e| match e {
        syn::Expr::Call(c) => Some(&*c.func),
        _ => None,
    });
    matches!(called, Some(syn::Expr::Path(p)) if p.path.is_ident("Err"))
}

fn bytes(of: &impl Spanned) -> Range<usize> {
    of.span().byte_range()
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        self.within(&f.sig, &f.attrs, |s| s.visit_block(&f.block));
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.within(&f.sig, &f.attrs, |s| s.visit_block(&f.block));
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        if let Some(body) = &f.default {
            self.within(&f.sig, &f.attrs, |s| s.visit_block(body));
        }
    }

    fn visit_item_mod(&mut self, m: &'ast syn::ItemMod) {
        if !is_test(&m.attrs) {
            visit::visit_item_mod(self, m);
        }
    }

    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}

    fn visit_expr_repeat(&mut self, e: &'ast syn::ExprRepeat) {
        self.visit_expr(&e.expr);
    }

    fn visit_local(&mut self, l: &'ast syn::Local) {
        if let Some(init) = &l.init {
            visit::visit_local_init(self, init);
        }
    }

    fn visit_stmt(&mut self, s: &'ast syn::Stmt) {
        if let syn::Stmt::Expr(syn::Expr::Try(e), Some(_)) = s
            && matches!(&*e.expr, syn::Expr::Call(_) | syn::Expr::MethodCall(_))
        {
            self.site("missing check", bytes(s), String::new(), true);
        }
        visit::visit_stmt(self, s);
    }

    fn visit_expr_if(&mut self, e: &'ast syn::ExprIf) {
        if reports_error(&e.then_branch) && !matches!(&*e.cond, syn::Expr::Let(_)) && !has_let(&e.cond) {
            self.site("missing check", bytes(&e.cond), "false".to_string(), false);
        }
        visit::visit_expr_if(self, e);
    }

    fn visit_expr_binary(&mut self, e: &'ast syn::ExprBinary) {
        if let Some((kind, by)) = other_operator(&e.op)
            && !(matches!(e.op, syn::BinOp::And(_)) && has_let(&syn::Expr::Binary(e.clone())))
        {
            self.push(kind, bytes(e), bytes(&e.op), by);
        }
        visit::visit_expr_binary(self, e);
    }

    fn visit_expr_method_call(&mut self, e: &'ast syn::ExprMethodCall) {
        if let Some((kind, by)) = other_method(&e.method.to_string()) {
            self.push(kind, bytes(e), bytes(&e.method), by);
        }
        visit::visit_expr_method_call(self, e);
    }

    fn visit_expr_unary(&mut self, e: &'ast syn::ExprUnary) {
        if matches!(e.op, syn::UnOp::Neg(_)) && !matches!(&*e.expr, syn::Expr::Lit(_)) {
            self.push("sign", bytes(e), bytes(&e.op), "");
        }
        visit::visit_expr_unary(self, e);
    }

    fn visit_expr_lit(&mut self, e: &'ast syn::ExprLit) {
        let range = bytes(e);
        match &e.lit {
            syn::Lit::Int(i) if i.base10_digits().len() < 4 => {
                let by = i.base10_parse::<u64>().map_or(1, |v| v + 1);
                self.push("off by one", range.clone(), range, &format!("{by}{}", i.suffix()));
            }
            syn::Lit::Float(f) => {
                let by = if f.base10_parse::<f64>().is_ok_and(|v| v == 0.0) { "1.0" } else { "0.5 * " };
                let (by, end) = if by == "1.0" { (by, range.end) } else { (by, range.start) };
                self.push("factor", range.clone(), range.start..end, by);
            }
            syn::Lit::Bool(b) => self.push("condition", range.clone(), range, if b.value { "false" } else { "true" }),
            _ => {}
        }
    }
}

/// True for a chain of conditions that binds names. It must stay where it is.
fn has_let(e: &syn::Expr) -> bool {
    match e {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(b) => has_let(&b.left) || has_let(&b.right),
        syn::Expr::Paren(p) => has_let(&p.expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_found_where_a_switch_can_stand() {
        let text = "
            const C: usize = 1 + 2;
            fn samples() -> usize { 3 }
            fn f(a: &[i32], n: usize) -> Result<i32, E> {
                check(n)?;
                if n < 4 { return Err(E); }
                match n { 5 => {} _ => {} }
                let x = [0; 6];
                Ok(-a[n].min(C))
            }
            #[cfg(test)] mod tests { fn g() -> i32 { 7 } }
            #[test] fn h() { assert!(1 < 2); }";
        let all: Vec<_> = sites(text).unwrap().into_iter().map(|s| (s.kind, s.original, s.faulty)).collect();
        let want = [
            ("missing check", "check(n)?;", ""),
            ("missing check", "n < 4", "false"),
            ("boundary", "n < 4", "n <= 4"),
            ("off by one", "4", "5"),
            ("off by one", "0", "1"),
            ("sign", "-a[n].min(C)", "a[n].min(C)"),
            ("tie or bound", "a[n].min(C)", "a[n].max(C)"),
        ];
        assert_eq!(all, want.map(|(k, o, f)| (k, o.to_string(), f.to_string())));
    }

    #[test]
    fn a_switch_has_both_readings() {
        let all = sites("fn f(a: i32) -> Option<i32> { g(a)?; Some(a + 1) }").unwrap();
        let texts: Vec<_> = all.iter().map(|s| s.switched(7)).collect();
        assert_eq!(texts[0], "if !crate::planted_fault(7) { g(a)?; }");
        assert_eq!(texts[1], "(if crate::planted_fault(7) { a - 1 } else { a + 1 })");
    }

    #[test]
    fn conditions_that_bind_are_left_alone() {
        let all = sites("fn f(a: Option<i32>) { if let Some(x) = a && x < b { } }").unwrap();
        assert_eq!(all.iter().map(|s| s.kind).collect::<Vec<_>>(), ["boundary"]);
    }
}
