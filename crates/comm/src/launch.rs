//! Launchers' entries in the environment of the processes that they start.
//!
//! Under an unknown launcher every process would train by itself, and all would write into one folder. So Remat joins the
//! processes of launchers that MPI supports, and refuses the other common ones.

use remat_types::{Error, ErrorKind, Result};

/// Launchers of MPI libraries: Open MPI's; those of MPICH and its relatives, and Slurm's and Flux's in their place; MVAPICH's.
const OF_MPI: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
];

/// By one of these an MPI library finds the other processes of a Slurm step.
const WAYS_TO_JOIN: [&str; 5] = ["PMIX_RANK", "PMIX_NAMESPACE", "PMI_FD", "PMI_JOBID", "PMI_CONTROL_PORT"];

/// The rank of this process and the number of ranks as the launcher's environment says it, before MPI is started; `None` without
/// a launcher. It knows those of Open MPI, of MPICH and its relatives, and of Slurm (`srun --mpi=pmix`).
///
/// Errors (Device), which say how to start it instead: several processes were started in a way in which they cannot find each other, by
/// `torchrun` for instance, or `srun` without `--mpi`.
pub fn launched() -> Result<Option<(usize, usize)>> {
    read(&|name| std::env::var(name).ok())
}

fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<(usize, usize)>> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    let pair = |(rank, size): (&str, &str)| Some((number(rank)?, number(size)?));
    let by_mpi = OF_MPI.into_iter().find_map(pair);
    let known = by_mpi.or_else(|| slurm(variable, &number));
    if let Some((rank, size)) = known.filter(|(_, size)| *size > 1) {
        let joins = by_mpi.is_some() || WAYS_TO_JOIN.iter().any(|name| variable(name).is_some());
        return if joins { Ok(Some((rank, size))) } else { Err(without_a_way("srun", rank, size)) };
    }
    if let Some((rank, size)) = pair(("RANK", "WORLD_SIZE")).filter(|(_, size)| *size > 1) {
        return Err(without_a_way("torchrun, or a launcher like it (RANK and WORLD_SIZE are set),", rank, size));
    }
    if let (None, Some(rank)) = (known, number("PMIX_RANK")) {
        let text = format!(
            "a launcher started this process as rank {rank} (PMIX_RANK is set), and does not say of how many: start the program by \
             `mpirun -n N` or `srun --mpi=pmix -n N`"
        );
        return Err(Error::new(ErrorKind::Device, text));
    }
    Ok(known)
}

/// The rank and the number of tasks of a Slurm step. A batch script is told of its job's tasks, too, and is none of them.
fn slurm(variable: &dyn Fn(&str) -> Option<String>, number: &impl Fn(&str) -> Option<usize>) -> Option<(usize, usize)> {
    let rank = number("SLURM_PROCID")?;
    let is_script = rank == 0 && variable("ENVIRONMENT").as_deref() == Some("BATCH");
    let size = number("SLURM_STEP_NUM_TASKS").or_else(|| number("SLURM_NTASKS").filter(|_| !is_script))?;
    Some((rank, size))
}

fn without_a_way(launcher: &str, rank: usize, size: usize) -> Error {
    let text = format!(
        "{launcher} started this process as rank {rank} of {size}, and they cannot find each other: each would train a network of its \
         own. Ranks are processes of MPI: start the program by `mpirun -n {size}`, or by `srun --mpi=pmix -n {size}` under Slurm; if it \
         is to be one process, start it without the launcher"
    );
    Error::new(ErrorKind::Device, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Environment = [(&'static str, &'static str)];

    fn of(environment: &Environment) -> Result<Option<(usize, usize)>> {
        read(&|name| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn launchers_that_mpi_joins_say_who_this_is() {
        let slurm = [("SLURM_PROCID", "2"), ("SLURM_NTASKS", "4"), ("SLURM_STEP_NUM_TASKS", "3"), ("PMIX_RANK", "2")];
        let all: [(&Environment, Option<(usize, usize)>); 6] = [
            (&[], None),
            (&[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "1")], Some((1, 4))),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")], Some((0, 2))),
            (&slurm, Some((2, 3))),
            // one process of any of them, or of a script that is told of its job
            (&[("RANK", "0"), ("WORLD_SIZE", "1")], None),
            (&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("ENVIRONMENT", "BATCH")], None),
        ];
        for (environment, want) in all {
            assert_eq!(of(environment).unwrap_or_else(|e| panic!("{environment:?}: {e}")), want, "{environment:?}");
        }
    }

    #[test]
    fn launchers_that_start_separate_trainings_are_refused() {
        let torchrun = [("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")];
        let in_slurm = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1"), ("RANK", "0"), ("WORLD_SIZE", "4")];
        let all: [(&Environment, &str); 5] = [
            (&torchrun, "torchrun"),
            (&in_slurm, "torchrun"),
            (&[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")], "srun"),
            (&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_STEP_NUM_TASKS", "4")], "srun"),
            (&[("PMIX_RANK", "0")], "PMIX_RANK"),
        ];
        for (environment, launcher) in all {
            let e = of(environment).expect_err("several that cannot find each other");
            let text = e.message();
            assert!(text.contains(launcher) && text.contains("mpirun -n"), "{environment:?}: {text}");
            assert_eq!(e.kind(), ErrorKind::Device);
        }
    }
}
