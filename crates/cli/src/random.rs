//! Random numbers that are functions of what they are for.

pub(crate) use remat_digits::mixed;
