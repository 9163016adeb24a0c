//! The crate as its users see it; one binary, so that it links once.

mod averages;
mod checkpoint;
mod compiled;
mod derive;
mod failures;
mod gradients;
mod init;
mod layers;
mod loader;
mod losses;
mod model_bits;
mod model_table;
mod models;
mod optim;
mod parameters;
mod places;
mod published;
mod recurrent;
mod rules;
mod saving;
mod sessions;
mod sizes;
mod support;
mod training;
mod vision;
mod weights;
