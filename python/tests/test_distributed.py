import hashlib
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import remat
from remat import distributed, nn, optim


def on_device(f):
    """`f` on ranks that have a device each."""

    def main(ranks, *args):
        remat.set_default_device(remat.Device(budget="64MiB", threads=1, ranks=ranks))
        return f(ranks, *args)

    return main


def test_ranks_know_each_other_and_split():
    def main(ranks):
        ranks.barrier()
        part = ranks.split(ranks.rank % 2)
        none = ranks.split(None if ranks.rank else 0)
        same = ranks.duplicate()
        return ranks.rank, ranks.size, part.rank, part.size, none is None, same == ranks, repr(ranks), ranks.limit

    seen = distributed.run_threads(main, ranks=3, limit=60)
    assert [s[:4] for s in seen] == [(0, 3, 0, 2), (1, 3, 0, 1), (2, 3, 1, 2)]
    assert [s[4] for s in seen] == [False, True, True] and not any(s[5] for s in seen)
    assert seen[1][6:] == ("Communicator(rank=1, size=3)", 60.0)
    assert distributed.run(lambda ranks, x: (ranks.size, x), 5) == (1, 5)


def test_collectives_reduce_in_the_order_of_ranks():
    @on_device
    def main(ranks):
        x = remat.tensor([1.0, 2.0, 3.0, 4.0]) * (ranks.rank + 1)
        ops = {op: distributed.all_reduce(x, ranks, op).tolist() for op in ("sum", "mean", "max", "min", "prod")}
        y = remat.tensor([1.0, 2.0], requires_grad=True)
        (distributed.all_reduce(y, ranks) * (ranks.rank + 1)).sum().backward()
        return ops, y.grad.tolist()

    (ops, grad), other = distributed.run_threads(main, ranks=2)
    assert (ops, grad) == other and grad == [3.0, 3.0]
    assert ops == {
        "sum": [3.0, 6.0, 9.0, 12.0], "mean": [1.5, 3.0, 4.5, 6.0], "max": [2.0, 4.0, 6.0, 8.0], "min": [1.0, 2.0, 3.0, 4.0],
        "prod": [2.0, 8.0, 18.0, 32.0],
    }
    alone = distributed.Communicator()
    with pytest.raises(ValueError, match="median"):
        distributed.all_reduce(remat.ones(1), alone, "median")
    with pytest.raises(TypeError):
        distributed.all_reduce(remat.ones(1), None)
    with pytest.raises(TypeError):
        distributed.all_reduce(remat.ones(1, dtype="int32"), alone, "mean")
    with pytest.raises(ValueError):
        distributed.broadcast(remat.ones(1), alone, root=1).tolist()


def test_the_rank_that_failed_is_the_one_that_is_told():
    @on_device
    def raises(ranks):
        if ranks.rank == 1:
            raise KeyError("mine")
        return distributed.all_reduce(remat.ones(2), ranks).tolist()

    began = time.monotonic()
    with pytest.raises(KeyError, match="mine") as e:
        distributed.run_threads(raises, ranks=3)
    assert e.value.rank == 1 and time.monotonic() - began < 30

    @on_device
    def differs(ranks):
        x = remat.ones(2 + ranks.rank)
        return distributed.all_reduce(x, ranks).tolist()

    with pytest.raises(remat.PeerError, match="rank"):
        distributed.run_threads(differs, ranks=2)

    @on_device
    def late(ranks):
        if ranks.rank == 0:
            ranks.barrier()

    with pytest.raises(remat.PeerError):
        distributed.run_threads(late, ranks=2, limit=0.5)
    for wrong in ({"ranks": 0}, {"ranks": 1, "limit": -1.0}):
        with pytest.raises(ValueError):
            distributed.run_threads(lambda ranks: None, **wrong)


def batches(rank, step):
    rng = np.random.default_rng(100 * step + rank)
    return rng.standard_normal((4, 6)).astype("float32"), rng.integers(0, 3, 4)


def net_of(seed):
    remat.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def digest(net):
    return hashlib.sha256(b"".join(t.tobytes() for t in net.state_dict().values())).hexdigest()


def test_data_parallel_training_is_that_of_one_process_to_the_bit():
    @on_device
    def main(ranks, sharded, gradients):
        net = net_of(7 + ranks.rank)
        parallel = distributed.DataParallel(net, ranks, gradients=gradients)
        optimizer = distributed.sharded(optim.AdamW, net, ranks, lr=0.05) if sharded else optim.AdamW(net, lr=0.05)
        for step in range(5):
            x, labels = batches(ranks.rank, step)
            parallel.backward(nn.cross_entropy(net(remat.asarray(x)), remat.asarray(labels)))
            optimizer.step()
        assert parallel.buckets >= 1 and optimizer.groups[0]["lr"] == 0.05
        return digest(net), sorted(optimizer.state_dict()["state"])

    def alone():
        before = remat.get_default_device()
        remat.set_default_device(remat.Device(budget="64MiB", threads=1))
        try:
            net = net_of(7)
            optimizer, accumulate = optim.AdamW(net, lr=0.05), optim.Accumulate(2)
            for step in range(5):
                for rank in range(2):
                    x, labels = batches(rank, step)
                    if accumulate.backward(nn.cross_entropy(net(remat.asarray(x)), remat.asarray(labels))):
                        optimizer.step()
            return digest(net), sorted(optimizer.state_dict()["state"])
        finally:
            remat.set_default_device(before)

    want = alone()
    for sharded, gradients in ((False, "whole"), (True, "whole"), (True, "divided")):
        assert distributed.run_threads(main, sharded, gradients, ranks=2) == [want, want], (sharded, gradients)


def test_a_divided_optimiser_keeps_its_options_and_goes_on():
    @on_device
    def main(ranks, folder):
        def make():
            net = net_of(1)
            return net, distributed.DataParallel(net, ranks), distributed.sharded(optim.SGD, net, ranks, lr=0.1, momentum=0.9)

        def steps(net, parallel, optimizer, n):
            for step in range(n):
                x, labels = batches(ranks.rank, step)
                parallel.backward(nn.cross_entropy(net(remat.asarray(x)), remat.asarray(labels)))
                optimizer.step()
            return digest(net)

        a = make()
        a[2].set_group(0, lr=0.2)
        steps(*a, 2)
        remat.Checkpoint.save(folder, a[0], a[2], step=2)
        b = make()
        remat.Checkpoint(folder).restore(b[0], b[2])
        assert b[2].lr == 0.2
        want = steps(*a, 2)
        c = make()
        c[2].load_state_dict(b[2].state_dict())
        c[0].load_state_dict(b[0].state_dict())
        for wrong in (
            lambda: c[2].add_param_group({"params": []}), lambda: c[2].set_group(1, lr=0.1),
            lambda: distributed.sharded(optim.Lamb, net_of(2), ranks),
        ):
            with pytest.raises(ValueError):
                wrong()
        return want == steps(*b, 2)

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert distributed.run_threads(main, folder, ranks=2) == [True, True]


def test_batch_norms_see_all_ranks():
    @on_device
    def main(ranks):
        net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
        assert distributed.synchronise_batch_norms(net, ranks) == 1
        net[1](remat.full((2, 1), float(ranks.rank)))
        return net[1].running_mean.tolist()

    assert distributed.run_threads(main, ranks=2) == [[pytest.approx(0.05)]] * 2


def test_threads_that_are_ranks_have_what_is_theirs(device):
    def main(ranks):
        first = remat.get_default_device()
        remat.manual_seed(ranks.rank)
        drawn = remat.rand(1).item()
        ranks.barrier()
        return first is remat.get_default_device() and first != device, drawn

    (own, a), (other, b) = distributed.run_threads(main, ranks=2)
    assert own and other and a != b and remat.get_default_device() is device
    with pytest.raises(ValueError, match="ranks"):
        distributed.run_threads(lambda ranks: distributed.DataParallel(nn.Linear(1, 1), ranks), ranks=2)


EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "ranks.py"
ENV = {**os.environ, "PYTHONPATH": str(pathlib.Path(remat.__file__).parents[1])}


def example(*command):
    done = subprocess.run([*command], capture_output=True, text=True, env=ENV)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_example_learns_on_ranks():
    lines = example(sys.executable, str(EXAMPLE), "--threads", "2")
    assert lines[-1].startswith("2 ranks: ") and int(lines[-1].split()[2]) > 850, lines
    if distributed.is_mpi_available():
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
        assert example(*launcher, sys.executable, str(EXAMPLE)) == lines


def test_a_build_without_mpi_says_how_to_get_one(tmp_path):
    if distributed.is_mpi_available():
        pytest.skip("this build has MPI")
    program = "import remat; remat.distributed.run(lambda ranks: print('ran'))"
    ranks = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**ENV, **ranks})
    assert done.returncode != 0 and "--features mpi" in done.stderr and "DeviceError" in done.stderr
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENV)
    assert done.stdout == "ran\n", done.stderr


@pytest.mark.parametrize(
    "environment",
    [{"RANK": "1", "WORLD_SIZE": "2"}, {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, {"PMIX_RANK": "0"}],
)
def test_launchers_that_would_train_separate_networks_are_refused(environment):
    program = "import remat; remat.distributed.run(lambda ranks: print('ran'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**ENV, **environment})
    assert done.returncode != 0 and "DeviceError" in done.stderr and "mpirun -n" in done.stderr, done.stderr


@pytest.mark.parametrize("compiled", [False, True])
def test_each_pass_of_a_step_counts_once(compiled):
    def main(ranks, passes):
        remat.set_default_device(remat.Device(ranks=ranks))
        net = nn.Module()
        net.w = nn.Parameter(remat.zeros(2))
        parallel, optimizer = distributed.DataParallel(net, ranks), optim.SGD(net, lr=1.0)

        def step(x):
            passes(parallel, lambda k: (net.w * k * x).sum())
            optimizer.step()
            return x.sum()

        step = remat.compile(step) if compiled else step
        for _ in range(2):
            step(remat.ones(2) * 10**ranks.rank)
        return net.w.tolist()

    def of_all(parallel, loss):
        parallel.backward(loss(1))
        parallel.backward(loss(2))

    def alone(parallel, loss):
        with parallel.no_sync():
            parallel.backward(loss(0.5))
            loss(0.5).backward()
        parallel.backward(loss(2))

    for passes in (of_all, alone):
        assert distributed.run_threads(main, passes, ranks=2) == [[-33.0, -33.0]] * 2


def test_ranks_that_differ_are_told_what_does():
    def order(ranks):
        remat.set_default_device(remat.Device(ranks=ranks))
        net = nn.Module()
        for name in ("ab" if ranks.rank == 0 else "ba"):
            setattr(net, name, nn.Parameter(remat.zeros(2)))
        distributed.DataParallel(net, ranks)

    def options(ranks):
        remat.set_default_device(remat.Device(ranks=ranks))
        distributed.DataParallel(nn.Linear(1, 1), ranks, find_unused=ranks.rank == 1)

    for main, text in ((order, "rank 1 has `b`.*another order"), (options, "find_unused = true")):
        with pytest.raises(remat.PeerError, match=text):
            distributed.run_threads(main, ranks=2)


HOLDS = """
import remat
from remat import distributed, nn, optim

def main(ranks):
    global net, parallel, optimizer, part
    remat.set_default_device(remat.Device(ranks=ranks))
    net = nn.Linear(2, 2)
    parallel, optimizer = distributed.DataParallel(net, ranks), distributed.sharded(optim.SGD, net, ranks, lr=0.1)
    part = ranks.split(0)
    if FAILS and ranks.rank == 1:
        raise KeyError("mine")
    parallel.backward(net(remat.ones(1, 2)).sum())
    optimizer.step()
    print("ran")

distributed.run(main, limit=30)
"""


@pytest.mark.skipif(not distributed.is_mpi_available(), reason="this build has no MPI")
@pytest.mark.parametrize("fails", [False, True])
def test_processes_end_whatever_they_hold(fails):
    program = HOLDS.replace("FAILS", str(fails))
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable, "-c", program]
    done = subprocess.run(launcher, capture_output=True, text=True, env=ENV, timeout=120)
    assert (done.returncode == 0) == (not fails), done.stderr
    assert ("KeyError: 'mine'" in done.stderr) if fails else done.stdout.split() == ["ran", "ran"], done.stderr


def test_the_last_owner_of_a_device_waits_without_the_interpreters_lock():
    def main(ranks):
        device = remat.Device(ranks=ranks)
        y = distributed.all_reduce(remat.ones(2, device=device), ranks)
        del device, y  # rank 0 comes here while its reduction waits for rank 1, which needs the lock to get to its own
        return ranks.rank

    def late(ranks):
        if ranks.rank == 1:
            time.sleep(0.3)
        return main(ranks)

    begun = time.monotonic()
    assert distributed.run_threads(late, ranks=2, limit=20.0) == [0, 1]
    # a rank that keeps the lock gives up at the limit only
    assert time.monotonic() - begun < 10


def test_ctrl_c_ends_ranks_at_their_next_collective():
    script = textwrap.dedent("""
        import os, signal, threading, time, remat
        from remat import distributed
        # a job in the background is begun with the signal ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def main(ranks):
            device = remat.Device(threads=1, ranks=ranks)
            while True:
                distributed.all_reduce(remat.ones(4, device=device), ranks).tolist()

        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begun = time.perf_counter()
        try:
            distributed.run_threads(main, ranks=2)
        except KeyboardInterrupt:
            print("interrupted", time.perf_counter() - begun < 10)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "interrupted True", done
