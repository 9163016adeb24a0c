//! Groups of ranks.

use remat_comm::{Call, Communicator, threads};
use remat_types::{Error, ErrorKind, Result};

use crate::collectives::check_all;

fn all_ranks(c: &Communicator, world: usize) -> Result<Vec<u8>> {
    let mut y = vec![0; c.size()];
    c.all_gather(&Call::named("who"), &[world as u8], &mut y)?;
    Ok(y)
}

#[test]
fn ranks_of_a_color_are_a_group_in_the_order_of_keys() {
    let seen = threads::run(5, |c| {
        let world = c.rank();
        let color = [Some(7), Some(3), Some(7), None, Some(7)][world];
        let Some(group) = c.split(color, 10 - world)? else { return Ok(None) };
        assert_eq!(group.split(None, 0)?.map(|g| g.size()), None);
        check_all(&group)?;
        Ok(Some((group.rank(), all_ranks(&group, world)?)))
    });
    let seven = vec![4, 2, 0];
    let want = [Some((2, seven.clone())), Some((0, vec![1])), Some((1, seven.clone())), None, Some((0, seven))];
    assert_eq!(seen.expect("all agree"), want);
}

#[test]
fn a_duplicate_has_an_order_of_its_own() {
    threads::run(2, |c| {
        let own = c.duplicate()?;
        assert!(own != c && own.rank() == c.rank() && own.size() == c.size());
        // each rank begins with the other communicator
        std::thread::scope(|scope| {
            let other = scope.spawn(|| own.barrier());
            c.barrier()?;
            other.join().map_err(|_| Error::new(ErrorKind::Internal, "panicked"))?
        })
    })
    .expect("neither waits for the other");
}

#[test]
fn the_last_of_clones_is_alone() {
    let first = Communicator::alone();
    let second = first.clone();
    assert!(!first.is_last() && !second.is_last());
    drop(first);
    let own = second.duplicate().expect("there is no other rank");
    assert!(second.is_last() && own.is_last());
}

#[test]
fn a_group_hears_of_a_rank_that_left_the_whole() {
    let result = threads::run(3, |c| {
        let group = c.split(Some(0), 0)?.ok_or_else(|| Error::new(ErrorKind::Internal, "no group"))?;
        match c.rank() {
            0 => Err(Error::new(ErrorKind::Value, "of my own")),
            _ => group.barrier(),
        }
    });
    let e = result.expect_err("one failed");
    assert!(e.kind() == ErrorKind::Value && e.message().contains("rank 0: of my own"), "{e}");
}

#[test]
fn alone_is_a_group_of_one() {
    check_all(&Communicator::alone()).expect("copies");
}

#[test]
fn collectives_give_what_one_process_computes() {
    for size in [1, 2, 3, 4] {
        threads::run(size, |c| check_all(&c)).expect("all agree");
    }
}
