//! The crate as its users see it; one binary, so that it links once.

mod samples;
mod support;
