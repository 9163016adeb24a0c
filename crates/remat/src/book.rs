//! The README and the chapters of the book, so that their examples are compiled and run as documentation tests.

macro_rules! pages {
    ($($name:ident = $path:literal;)*) => { $(
        #[doc = include_str!($path)]
        struct $name;
    )* };
}

pages! {
    Readme = "../../../README.md";
    GettingStarted = "../../../docs/src/getting-started.md";
    Tensors = "../../../docs/src/tensors.md";
    Budgets = "../../../docs/src/budgets.md";
    Autodiff = "../../../docs/src/autodiff.md";
    Training = "../../../docs/src/training.md";
    Models = "../../../docs/src/models.md";
    Programs = "../../../docs/src/programs.md";
    Compiled = "../../../docs/src/compiled.md";
    CommandLine = "../../../docs/src/command-line.md";
    Planning = "../../../docs/src/planning.md";
    Operators = "../../../docs/src/operators.md";
    Distributed = "../../../docs/src/distributed.md";
    Devices = "../../../docs/src/devices.md";
    OwnDevice = "../../../docs/src/own-device.md";
    Numerics = "../../../docs/src/numerics.md";
    Memory = "../../../docs/src/memory.md";
}
