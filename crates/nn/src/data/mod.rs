//! Data: datasets, and a loader that prepares batches ahead on threads of its own.

mod dataset;
mod loader;
mod order;
mod prefetch;

pub use dataset::{Dataset, TensorDataset};
pub use loader::{DataLoader, LoaderOptions, LoaderPosition};
pub use order::Shard;
