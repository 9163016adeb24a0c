/// The rank of this process and the number of ranks as the launcher's environment says it, before MPI is started; `None` without a
/// launcher that is known: Open MPI's, and those of MPICH and its kin.
pub fn launched() -> Option<(usize, usize)> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
    let pairs = [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")];
    pairs.into_iter().find_map(|(rank, size)| Some((number(rank)?, number(size)?)))
}
