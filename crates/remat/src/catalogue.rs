//! The functions that a program can call, as data: for the command `remat ops`, and for tools.

/// Methods, layers, losses, optimisers, schedules, initialisers and models, as their documentation has them: a JSON list of
/// objects with `name`, `kind`, `family`, `signature`, `text` and `examples`. `cargo xtask catalogue` writes it.
pub const CALLABLES: &str = include_str!("catalogue.json");

/// How many cases of PyTorch's and SciPy's results each name is compared with: a JSON object of families, in which each name has
/// `cases` and `gradients`. `scripts/make_fixtures.py` writes it.
pub const FIXTURES: &str = include_str!("../fixtures/index.json");
