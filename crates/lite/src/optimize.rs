//! Files whose passes were run beforehand.

use remat_graph::ir::symbolic::Symbolic;
use remat_graph::ir::{Graph, GraphFile, GraphForm};
use remat_graph::passes::{self, Pass, PassCx, Target};
use remat_kernels::pool::Pool;
use remat_ops::Op;
use remat_runtime::control_flow::registry;
use remat_types::{Fact, Result};

use crate::Options;

/// Any machine: what passes for one processor make stays out of files.
struct Any;

impl Target for Any {
    fn supports(&self, _op: &dyn Op, _x: &[&Fact]) -> bool {
        true
    }

    fn passes(&self) -> &'static [Pass] {
        &[]
    }
}

/// The file after the passes of the options' level: constants folded, operators fused, values stored as [`Options::half`].
///
/// A session runs the passes for its processor besides. Errors: Value for a graph over symbols for which passes do different things
/// at different sizes, and for options that nothing can have.
pub fn optimize(file: &GraphFile, options: &Options) -> Result<GraphFile> {
    options.check()?;
    let (passes, pool) = (options.compile().passes, Pool::new(options.threads));
    let cx = PassCx { options: &passes, target: &Any, pool: &pool };
    let one = |g: Graph| passes::optimize(g, &cx).map(|done| done.0);
    let form = match &file.form {
        GraphForm::Fixed(g) => GraphForm::Fixed(one(g.clone())?),
        GraphForm::Symbolic(s) => {
            GraphForm::Symbolic(Symbolic::new(s.dims(), &registry(), |sizes| one(s.instantiate(sizes)?))?)
        }
    };
    Ok(GraphFile { form, metadata: file.metadata.clone() })
}
