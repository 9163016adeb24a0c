//! `calc!`: formulas of tensors, with the question marks and borrows put in.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{BinOp, Expr, UnOp};

/// Where the trait that ends a step is found.
fn settle(e: TokenStream, at: &Expr) -> TokenStream {
    quote_spanned! { at.span() => ::remat::tensor::Settle::settle(#e)? }
}

/// The method that compares elements, for Rust's operator.
fn comparison(op: &BinOp) -> Option<TokenStream> {
    Some(match op {
        BinOp::Lt(_) => quote!(lt),
        BinOp::Le(_) => quote!(le),
        BinOp::Gt(_) => quote!(gt),
        BinOp::Ge(_) => quote!(ge),
        BinOp::Eq(_) => quote!(eq),
        BinOp::Ne(_) => quote!(ne),
        _ => return None,
    })
}

/// `e` as an operand: a tensor, a reference to one, or a number.
pub(crate) fn operand(e: &Expr) -> syn::Result<TokenStream> {
    match e {
        Expr::Binary(b) => {
            let (left, right) = (operand(&b.left)?, operand(&b.right)?);
            if let Some(method) = comparison(&b.op) {
                return Ok(settle(quote!(::remat::Tensor::#method(&#left, #right)), e));
            }
            let op = match b.op {
                BinOp::And(_) | BinOp::Or(_) => {
                    return Err(syn::Error::new(b.op.span(), "of masks, write `&` and `|`"));
                }
                op if is_assignment(&op) => {
                    return Err(syn::Error::new(op.span(), "a formula assigns nothing; write `x = calc!(x + ..)`"));
                }
                op => op,
            };
            Ok(settle(quote!(#left #op #right), e))
        }
        Expr::Unary(u) if matches!(u.op, UnOp::Neg(_) | UnOp::Not(_)) && !matches!(*u.expr, Expr::Lit(_)) => {
            let (op, inner) = (u.op, operand(&u.expr)?);
            Ok(settle(quote!(#op #inner), e))
        }
        Expr::Paren(p) => operand(&p.expr),
        Expr::Group(g) => operand(&g.expr),
        Expr::Path(_) | Expr::Field(_) | Expr::Index(_) => {
            Ok(quote_spanned! { e.span() => ::core::clone::Clone::clone(&#e) })
        }
        Expr::Try(t) => {
            let inner = called(&t.expr)?;
            Ok(quote!(#inner?))
        }
        Expr::MethodCall(_) | Expr::Call(_) => Ok(settle(called(e)?, e)),
        other => Ok(quote!(#other)),
    }
}

/// A call. Its receiver is an operand, and its arguments are plain Rust.
fn called(e: &Expr) -> syn::Result<TokenStream> {
    let Expr::MethodCall(call) = e else { return Ok(quote!(#e)) };
    let (method, turbofish, args) = (&call.method, &call.turbofish, &call.args);
    let receiver = match &*call.receiver {
        plain @ (Expr::Path(_) | Expr::Field(_) | Expr::Index(_)) => quote!(#plain),
        other => operand(other)?,
    };
    Ok(quote_spanned! { e.span() => (#receiver).#method #turbofish (#args) })
}

fn is_assignment(op: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}
