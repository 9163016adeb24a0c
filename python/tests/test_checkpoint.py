import json
import os
import pathlib
import subprocess
import sys

import pytest

import remat
from remat import nn, optim

# One run of `STEPS` steps that begins anew or goes on from a folder, and prints all that it is then.
RUN = '''
import hashlib, json, sys
import remat
from remat import nn, optim

begin, end, load, save = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
remat.set_default_device(remat.Device(budget="64MiB", threads=2))
remat.manual_seed(7 if not load else 99)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=4)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.rnn = nn.GRU(4 * 7, 16)
        self.head = nn.Linear(16, 10)
        self.register_buffer("seen", remat.zeros((), dtype="int64"))

    def forward(self, x):
        y = self.drop(self.norm(self.conv(x)).relu())
        y, _ = self.rnn(y.permute(2, 0, 1, 3).reshape(7, -1, 28))
        return self.head(y[-1])

net = Net()
optimizer = optim.AdamW(net, lr=0.01, amsgrad=True)
schedule = optim.cosine(lr=0.01, steps=10).after_warmup(3)
loader = remat.data.DataLoader(remat.data.Digits(shift=True), batch_size=3000, shuffle=3, workers=0)
if load:
    c = remat.Checkpoint(load)
    c.restore(net, optimizer, loader=loader)
    assert (c.step, c.schedule.at(4), c.user) == (begin, schedule.at(4), {"best": [0.5]})
losses, at = [], begin
while at < end:
    batch = loader.next_batch()
    if batch is None:
        continue
    x, labels = batch
    optimizer.lr = schedule.at(at)
    noise = remat.randn(*x.shape) * 0.1  # of the run's own generator
    loss = nn.cross_entropy(net(x + noise), labels)
    loss.backward()
    optimizer.step()
    net.seen.set_(net.seen.detach() + 1)
    losses.append(loss.item())
    at += 1
if save:
    remat.Checkpoint.save(save, net, optimizer, loader=loader, schedule=schedule, step=at, user={"best": [0.5]})
h = hashlib.sha256()
for name, t in [*net.state_dict().items(), *optimizer.state_dict()["state"].items()]:
    h.update(name.encode() + t.tobytes())
print(json.dumps({"losses": losses, "state": h.hexdigest(), "at": loader.position, "next": remat.rand(2).tolist()}))
'''


def run(tmp_path, *args):
    script = tmp_path / "run.py"
    script.write_text(RUN)
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(remat.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(script), *map(str, args)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_that_goes_on_in_another_process_is_the_same_to_the_bit(tmp_path):
    whole = run(tmp_path, 0, 10, "", "")
    first = run(tmp_path, 0, 5, "", tmp_path / "saved")
    rest = run(tmp_path, 5, 10, tmp_path / "saved", "")
    assert first["losses"] + rest["losses"] == whole["losses"] and len(whole["losses"]) == 10
    assert {k: rest[k] for k in ("state", "at", "next")} == {k: whole[k] for k in ("state", "at", "next")}
    assert first["state"] != whole["state"]


def small():
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))


def saved(tmp_path):
    remat.manual_seed(1)
    net = small()
    optimizer = optim.SGD(net, lr=0.5, momentum=0.9)
    net(remat.ones(2, 3)).sum().backward()
    optimizer.step()
    remat.Checkpoint.save(tmp_path, net, optimizer, step=1)
    return net, optimizer


def values(net, optimizer):
    return [t.tolist() for t in (*net.state_dict().values(), *optimizer.state_dict()["state"].values())]


def test_new_objects_take_all_of_it(device, tmp_path):
    net, optimizer = saved(tmp_path)
    other = small()
    again = optim.SGD(other, lr=0.1)
    c = remat.Checkpoint(tmp_path)
    c.restore(other, again)
    assert values(other, again) == values(net, optimizer)
    assert again.groups == optimizer.groups
    # dropout's own generator, too
    x = remat.ones(4, 3)
    assert other(x).tolist() == net(x).tolist()
    assert {n: t.tolist() for n, t in c.state_dict().items()} == {n: t.tolist() for n, t in net.state_dict().items()}
    assert repr(c) == "Checkpoint(step=1, epoch=0, has_optimizer=True)"


def test_what_does_not_fit_changes_nothing(device, tmp_path):
    saved(tmp_path)
    c = remat.Checkpoint(tmp_path)
    other = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    again = optim.SGD(other, lr=0.1, momentum=0.9)
    loader = remat.data.DataLoader(remat.data.TensorDataset(remat.arange(8)), batch_size=2)
    before, generator = values(other, again), remat.Generator(5)
    with pytest.raises(ValueError, match="2.weight"):
        c.restore(other, again, generator=generator)
    # the module fits, the optimiser does not
    fits = small()
    first = [t.tolist() for t in fits.state_dict().values()]
    with pytest.raises(remat.Error, match="optimizer"):
        c.restore(fits, optim.AdamW(fits), generator=generator)
    with pytest.raises(ValueError, match="place in the data"):
        c.restore(fits, loader=loader, generator=generator)
    assert values(other, again) == before and generator.counter == 0 and loader.position == (0, 0)
    assert [t.tolist() for t in fits.state_dict().values()] == first


def test_a_failure_puts_the_loader_back(device, tmp_path):
    data = remat.data.TensorDataset(remat.arange(8))
    loader = remat.data.DataLoader(data, batch_size=2, workers=0)
    loader.next_batch()
    remat.Checkpoint.save(tmp_path, nn.Linear(1, 1), loader=loader)
    c = remat.Checkpoint(tmp_path)
    assert c.position == (0, 1)
    new = remat.data.DataLoader(data, batch_size=2, workers=0)
    with pytest.raises(ValueError):
        c.restore(nn.Linear(2, 1), loader=new)
    assert new.position == (0, 0)
    c.restore(nn.Linear(1, 1), loader=new)
    assert new.next_batch()[0].tolist() == [2, 3]


def test_a_damaged_file_is_an_error_with_its_name(device, tmp_path):
    saved(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    good = path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]
    for wrong in (good[:-1], good[: len(good) // 2], b"", good + b"x", b"\xff" * len(good)):
        path.write_bytes(wrong)
        with pytest.raises(remat.FormatError) as e:
            remat.Checkpoint(tmp_path)
        assert str(path) in str(e.value)
    # one bit of a tensor, and one of the header
    for at, told in ((len(good) - 3, "tensor"), (40, "")):
        wrong = bytearray(good)
        wrong[at] ^= 1
        path.write_bytes(wrong)
        with pytest.raises(remat.FormatError) as e:
            remat.Checkpoint(tmp_path)
        assert str(path) in str(e.value) and told in str(e.value)
    path.write_bytes(good)
    remat.Checkpoint(tmp_path)
    with pytest.raises(OSError, match="nothing"):
        remat.Checkpoint(tmp_path / "nothing")


def test_a_failed_save_keeps_the_old_one(device, tmp_path):
    net, _ = saved(tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    zero = remat.zeros(2, 4, dtype="int64")
    net[2].weight.set_((zero // zero).cast("float32"))
    with pytest.raises(remat.Error):
        remat.Checkpoint.save(tmp_path, net)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    with pytest.raises(TypeError, match="JSON"):
        remat.Checkpoint.save(tmp_path, small(), user={"x": object()})
    with pytest.raises(TypeError, match="JSON"):
        remat.Checkpoint.save(tmp_path, small(), user=float("nan"))
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(OSError):
        remat.Checkpoint.save(file / "below", small())
    with pytest.raises(OSError):
        remat.Checkpoint.prepare(file / "below")
    assert remat.Checkpoint.exists(tmp_path) and not remat.Checkpoint.exists(file)
