//! Tensors of a file in the layout of a module's parameter.

use remat_nn::Parameter;
use remat_types::{Error, ErrorKind, HostTensor, Result, Shape};

use super::names::Change;

/// A tensor of a file that is a parameter, or some rows of one.
pub(super) struct Piece {
    pub theirs: String,
    pub value: HostTensor,
    pub change: Change,
}

/// The value of `of` from all pieces that a file has of it. Errors: Shape, Value for a piece that is missing or there twice.
pub(super) fn put_together(mut pieces: Vec<Piece>, of: &Parameter) -> Result<HostTensor> {
    let wanted = pieces[0].change.parts;
    pieces.sort_by_key(|p| p.change.part);
    let parts: Vec<usize> = pieces.iter().map(|p| p.change.part).collect();
    let is_whole = pieces.iter().all(|p| p.change.parts == wanted) && parts.iter().copied().eq(0..wanted);
    if !is_whole {
        let theirs: Vec<&str> = pieces.iter().map(|p| p.theirs.as_str()).collect();
        return Err(fault(ErrorKind::Value, format!("{wanted} parts make it, the file has {}", theirs.join(" and "))));
    }
    let shape = of.whole_shape();
    let mut all = Vec::new();
    for piece in &pieces {
        let own = part_shape(shape, wanted)?;
        let value = laid_out(piece, &own)?;
        if wanted == 1 {
            return cast(value, of);
        }
        all.extend(value.to_f64_vec());
    }
    cast(HostTensor::from_f64_slice(&all, of.dtype(), shape.clone())?, of)
}

/// The shape of one of `parts` pieces, which follow one another along axis 0.
fn part_shape(shape: &Shape, parts: usize) -> Result<Shape> {
    let mut own: Vec<usize> = shape.to_vec();
    match own.first_mut() {
        Some(rows) if rows.is_multiple_of(parts) => *rows /= parts,
        _ if parts == 1 => {}
        _ => return Err(fault(ErrorKind::Shape, format!("{shape} is not {parts} equal parts"))),
    }
    Ok(own.into_iter().collect())
}

/// The piece's tensor, of shape `own`.
fn laid_out(piece: &Piece, own: &Shape) -> Result<HostTensor> {
    let Piece { theirs, value, change } = piece;
    let value = if change.transposes { transposed(value)? } else { value.clone() };
    if change.reshapes && value.elems() == own.iter().product::<usize>() {
        return value.reshape(own.clone());
    }
    if value.shape() != own {
        return Err(fault(ErrorKind::Shape, format!("{theirs} is {}, not {own}", value.shape())));
    }
    Ok(value)
}

/// Errors: Shape for a rank that is not 2.
fn transposed(value: &HostTensor) -> Result<HostTensor> {
    let &[rows, columns] = &value.shape()[..] else {
        return Err(fault(ErrorKind::Shape, format!("{} is no matrix to transpose", value.shape())));
    };
    let (size, from) = (value.dtype().size_bytes(), value.bytes());
    let mut bytes = Vec::with_capacity(from.len());
    for j in 0..columns {
        for i in 0..rows {
            let at = (i * columns + j) * size;
            bytes.extend_from_slice(&from[at..at + size]);
        }
    }
    HostTensor::from_bytes(value.dtype(), [columns, rows], &bytes)
}

/// The value in the parameter's dtype; only floats are cast.
fn cast(value: HostTensor, of: &Parameter) -> Result<HostTensor> {
    if value.dtype() != of.dtype() && value.dtype().is_float() && of.dtype().is_float() {
        return HostTensor::from_f64_slice(&value.to_f64_vec(), of.dtype(), value.shape().clone());
    }
    Ok(value)
}

fn fault(kind: ErrorKind, text: String) -> Error {
    Error::new(kind, text)
}
