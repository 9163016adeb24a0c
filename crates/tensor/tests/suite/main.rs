//! The crate as its users see it; one binary, so that it links once.

mod attention;
mod collective;
mod compiled;
mod control_flow;
mod conv;
mod custom;
mod devices;
mod errors;
mod gradcheck;
mod gradients;
mod hooks;
mod loops;
mod methods;
mod order;
mod passes;
mod precision;
mod samples;
mod sizes;
mod support;
mod symbols;
mod threads;
mod versions;
