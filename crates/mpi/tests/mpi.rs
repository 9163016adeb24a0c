//! The collectives over MPI. remat-comm's suite runs the same checks on threads. This program starts itself under `mpirun`.

#[path = "../../comm/tests/shared/collectives.rs"]
mod collectives;

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use remat_comm::{Call, Communicator, Reduction, launched};
use remat_types::{DType, Error, ErrorKind, Result, Shape};

const STATUS: i32 = 17;

fn under_mpirun(ranks: usize, what: &str) -> Output {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]).arg(program).arg(what);
    command.output().expect("mpirun is part of the MPI library")
}

/// The programs of the ranks, by name.
fn ranks(what: &str, c: &Communicator) -> Result<()> {
    let call = Call::named("meeting");
    match (what, c.rank()) {
        ("collectives", _) => {
            collectives::check_all(c)?;
            let group = c.split((c.rank() != 1).then_some(4), c.size() - c.rank())?;
            assert_eq!(group.is_none(), c.rank() == 1);
            group.map_or(Ok(()), |g| collectives::check_all(&g))
        }
        ("fail", 1) => c.agree(&call, Err(Error::new(ErrorKind::Budget, "one byte too many"))),
        // the others wait for its own words
        ("fail", _) => c.agree(&call, Ok(())),
        ("mismatch", r) => c.agree(&Call::named(format!("step {r}")), Ok(())),
        ("panic", 1) => panic!("at the disco"),
        ("hang", 1) => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        ("die", 1) => std::process::abort(),
        ("early", 1) => Ok(()),
        // in the middle of a reduction, which takes all of the time
        ("stop", r) => {
            if r == 1 {
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(500));
                    Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status().expect("a program");
                });
            }
            let mut y = vec![0; 64 << 20];
            let shape = Shape::from([y.len() / 4]);
            let mut work = vec![0; c.reduce_workspace(DType::F32, y.len())];
            loop {
                let call = Call::new("all_reduce", "sum", DType::F32, &shape);
                c.all_reduce(&call, Reduction::Sum, DType::F32, None, &mut y, &mut work)?;
            }
        }
        _ => c.barrier(),
    }
}

fn main() {
    if launched().expect("a known launcher").is_some() {
        let what = std::env::args().nth(1).expect("a name");
        let limit = if ["hang", "stop"].contains(&&*what) { Duration::from_secs(2) } else { Duration::from_secs(120) };
        return remat_mpi::run(limit, |_| STATUS, |c| ranks(&what, &c)).expect("failures end all ranks");
    }
    for n in [1, 2, 3, 4] {
        let output = under_mpirun(n, "collectives");
        assert!(output.status.success(), "{n} ranks: {output:?}");
    }
    let expected = [
        ("fail", "error: rank 1: one byte too many"),
        ("mismatch", "step 0"),
        ("panic", "error: rank 1 panicked"),
        ("hang", "rank 1 has not come"),
        ("die", "rank 1"),
        ("early", "rank 1 calls nothing any more"),
        ("stop", "rank 1 has not come"),
    ];
    for (what, text) in expected {
        let start = Instant::now();
        let output = under_mpirun(3, what);
        let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{what}: {told}");
        assert!(told.contains(text), "{what}: {told}");
        assert!(start.elapsed() < Duration::from_secs(30), "{what} took {:?}", start.elapsed());
        if what != "die" {
            assert_eq!(output.status.code(), Some(STATUS), "{what}: {told}");
        }
        println!("{what}: ended in {:.1} s", start.elapsed().as_secs_f64());
    }
}
