//! The network that the user names, and the changed parameters.

use std::path::Path;

use clap::Args;
use remat::tensor::comm::cost::{Link, Network};
use remat::types::{Error, ErrorKind, Result};

use crate::input;

/// A network by name. Sources are on the page of the book, docs/src/scaling.md.
struct Named {
    name: &'static str,
    latency_us: f64,
    gb_s: f64,
}

const NAMED: [Named; 3] = [
    // MPI over the kernel's TCP; what 10 Gb/s leave of frames of 1,538 bytes for 1,448 bytes of data
    Named { name: "10gbe", latency_us: 25.0, gb_s: 1.177 },
    // RDMA; what 100 Gb/s leave of packets of 4,126 bytes for 4,096 bytes of data
    Named { name: "100g-infiniband", latency_us: 0.9, gb_s: 12.4 },
    // RDMA over Ethernet, through lossless switches; packets of 4,178 bytes for 4,096
    Named { name: "100g-roce", latency_us: 2.0, gb_s: 12.25 },
];

/// Between processes of one machine, through shared memory: as `remat scaling --check` finds it where the page was written.
const WITHIN: Link = Link { latency_s: 1.5e-6, bytes_per_s: 5e9 };

/// The speed at which a rank adds up. Fits gave this value and higher ones, since they do not separate it well from the
/// bandwidth.
const REDUCED_BYTES_PER_S: f64 = 20e9;

/// Which network it is.
#[derive(Args)]
pub(super) struct NetworkOptions {
    /// `10gbe`, `100g-infiniband`, `100g-roce`, or a file that `--save-network` wrote
    #[arg(long, value_name = "NAME", default_value = "100g-infiniband")]
    network: String,
    /// Latency between machines, in microseconds
    #[arg(long, value_name = "US")]
    latency_us: Option<f64>,
    /// Bandwidth of a network card, in GB/s (1 GB/s is 8 Gb/s)
    #[arg(long, value_name = "GB/S")]
    bandwidth: Option<f64>,
    /// Latency between ranks of a machine, in microseconds
    #[arg(long, value_name = "US")]
    local_latency_us: Option<f64>,
    /// Bandwidth between ranks of a machine while all of them send, in GB/s
    #[arg(long, value_name = "GB/S")]
    local_bandwidth: Option<f64>,
    /// Ranks of a machine, which share its network cards [default: 1, or what the file says]
    #[arg(long, value_name = "N")]
    ranks_per_machine: Option<usize>,
    /// Network cards of a machine
    #[arg(long, value_name = "N")]
    cards: Option<usize>,
    /// How fast a rank adds up, in GB/s
    #[arg(long, value_name = "GB/S")]
    reduction: Option<f64>,
}

impl NetworkOptions {
    /// The name of the network.
    pub(super) fn name(&self) -> &str {
        &self.network
    }

    /// Errors: Value for parameters that mean nothing or a name that is neither known nor a file, Format for a file that is none of
    /// these, Io.
    pub(super) fn read(&self) -> Result<Network> {
        let mut network = match NAMED.iter().find(|n| n.name == self.network) {
            Some(n) => Network {
                within: WITHIN,
                between: Link { latency_s: n.latency_us * 1e-6, bytes_per_s: n.gb_s * 1e9 },
                ranks_per_machine: 1,
                cards: 1,
                reduced_bytes_per_s: REDUCED_BYTES_PER_S,
            },
            None => file(&self.network)?,
        };
        let set = |to: &mut f64, value: Option<f64>, unit: f64| *to = value.map_or(*to, |v| v * unit);
        set(&mut network.between.latency_s, self.latency_us, 1e-6);
        set(&mut network.between.bytes_per_s, self.bandwidth, 1e9);
        set(&mut network.within.latency_s, self.local_latency_us, 1e-6);
        set(&mut network.within.bytes_per_s, self.local_bandwidth, 1e9);
        set(&mut network.reduced_bytes_per_s, self.reduction, 1e9);
        network.ranks_per_machine = self.ranks_per_machine.unwrap_or(network.ranks_per_machine);
        network.cards = self.cards.unwrap_or(network.cards);
        network.check()?;
        Ok(network)
    }
}

fn file(name: &str) -> Result<Network> {
    let path = Path::new(name);
    if !path.exists() {
        let names: Vec<&str> = NAMED.iter().map(|n| n.name).collect();
        let text = format!("there is no network `{name}`, and no such file; there are {}", names.join(", "));
        return Err(Error::new(ErrorKind::Value, text));
    }
    let bad = |e: serde_json::Error| Error::new(ErrorKind::Format, format!("{name}: {e}"));
    serde_json::from_str(&input::file(path)?).map_err(bad)
}
