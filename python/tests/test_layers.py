import numpy as np
import pytest

import remat
from remat import nn, optim


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def weights(layer, suffix=""):
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [getattr(layer, n + suffix).numpy().astype("float64") for n in names]


def lstm_step(x, h, c, w):
    gates = x @ w[0].T + w[2] + h @ w[1].T + w[3]
    i, f, g, o = np.split(gates, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(x, h, w):
    (ir, iz, inn), (hr, hz, hn) = np.split(x @ w[0].T + w[2], 3, axis=1), np.split(h @ w[1].T + w[3], 3, axis=1)
    r, z = sigmoid(ir + hr), sigmoid(iz + hz)
    return (1 - z) * np.tanh(inn + r * hn) + z * h


def test_recurrent_layers_follow_their_formulas(device):
    x = remat.randn(6, 3, 4)
    a = x.numpy().astype("float64")
    h, c = np.zeros((3, 5)), np.zeros((3, 5))
    lstm = nn.LSTM(4, 5)
    w, outputs = weights(lstm, "_l0"), []
    for step in a:
        h, c = lstm_step(step, h, c, w)
        outputs.append(h)
    y, (hn, cn) = lstm(x)
    for got, want in ((y, outputs), (hn[0], h), (cn[0], c)):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)
    gru, h = nn.GRU(4, 5), np.zeros((3, 5))
    for step in a:
        h = gru_step(step, h, weights(gru, "_l0"))
    np.testing.assert_allclose(gru(x)[1][0].numpy(), h, rtol=1e-4, atol=1e-5)
    rnn, h = nn.RNN(4, 5, nonlinearity="relu"), np.zeros((3, 5))
    w = weights(rnn, "_l0")
    for step in a:
        h = np.maximum(step @ w[0].T + w[2] + h @ w[1].T + w[3], 0)
    np.testing.assert_allclose(rnn(x)[0][-1].numpy(), h, rtol=1e-4, atol=1e-5)


def test_cells_are_steps_of_the_layers(device):
    x = remat.randn(3, 4)
    for layer, cell in ((nn.RNN(4, 5), nn.RNNCell(4, 5)), (nn.GRU(4, 5), nn.GRUCell(4, 5)), (nn.LSTM(4, 5), nn.LSTMCell(4, 5))):
        cell.load_state_dict({n.removesuffix("_l0"): t for n, t in layer.state_dict().items()})
        want = layer(x.reshape(1, 3, 4))[0][0]
        got = cell(x)
        np.testing.assert_allclose((got[0] if isinstance(got, tuple) else got).numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    h, c = nn.LSTMCell(4, 5)(x, (remat.ones(3, 5), remat.zeros(3, 5)))
    assert h.shape == c.shape == (3, 5)


def test_lengths_end_rows_and_states_go_on(device):
    lstm, x = nn.LSTM(2, 3, batch_first=True, bidirectional=True, num_layers=2), remat.randn(2, 4, 2)
    y, (h, _) = lstm(x, lengths=remat.tensor([4, 2]))
    assert y.shape == (2, 4, 6) and h.shape == (4, 2, 3) and (y[1, 2:] == 0).all()
    short, _ = lstm(x[1:, :2])
    np.testing.assert_allclose(y[1, :2].numpy(), short[0].numpy(), rtol=1e-5, atol=1e-6)
    gru = nn.GRU(2, 3)
    x = remat.randn(4, 1, 2)
    whole, last = gru(x)
    first, state = gru(x[:2])
    rest, end = gru(x[2:], state)
    np.testing.assert_allclose(remat.concat([first, rest]).numpy(), whole.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(end.numpy(), last.numpy(), rtol=1e-5, atol=1e-6)


def test_what_recurrent_layers_refuse(device):
    for wrong in (
        lambda: nn.RNN(2, 3, nonlinearity="gelu"), lambda: nn.LSTM(2, 0), lambda: nn.GRU(2, 3, dropout=2.0),
        lambda: nn.LSTM(2, 3, proj_size=3), lambda: nn.GRU(2, 3)(remat.ones(2, 2, 5)).tolist(),
        lambda: nn.LSTM(2, 3)(remat.ones(1, 1, 2), (remat.zeros(1, 1, 3), None)), lambda: nn.GRU(2, 3, num_layers=0),
    ):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(remat.Error, match="9"):
        nn.GRU(2, 3)(remat.ones(2, 1, 2), lengths=remat.tensor([9]))[0].tolist()


def test_an_lstm_learns(device):
    remat.manual_seed(0)
    net = nn.LSTM(1, 8, batch_first=True)
    head = nn.Linear(8, 1)
    optimizer = optim.Adam([*net.named_parameters(), *[("head." + n, p) for n, p in head.named_parameters()]], lr=0.02)
    x = remat.randn(16, 5, 1)
    losses = []
    for _ in range(30):
        y, _ = net(x)
        loss = nn.mse_loss(head(y[:, -1]), x.sum(axis=1) * 0.3)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0], losses


def test_attention_follows_its_formula(device):
    layer, x = nn.MultiHeadAttention(6, 2), remat.randn(1, 4, 6)
    qkv = x.numpy()[0] @ layer.qkv.weight.numpy().T + layer.qkv.bias.numpy()
    q, k, v = (part.reshape(4, 2, 3).transpose(1, 0, 2) for part in np.split(qkv, 3, axis=1))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(3)
    scores = np.where(np.tri(4, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    y = ((p / p.sum(-1, keepdims=True)) @ v).transpose(1, 0, 2).reshape(4, 6)
    want = y @ layer.out.weight.numpy().T + layer.out.bias.numpy()
    np.testing.assert_allclose(layer(x, causal=True)[0].numpy(), want, rtol=1e-4, atol=1e-5)
    mask = remat.asarray(np.tri(4, dtype=bool)[None, None])
    np.testing.assert_allclose(layer(x, mask)[0].numpy(), want, rtol=1e-4, atol=1e-5)
    # token by token, with keys and values that are kept
    cache = layer.cache(1, 4)
    steps = [layer(x[:, i:i + 1], cache=cache)[0, 0].numpy() for i in range(4)]
    np.testing.assert_allclose(steps, want, rtol=1e-4, atol=1e-5)
    assert len(cache) == 4
    with pytest.raises(ValueError):
        layer(x, cache=cache)
    cache.truncate(1)
    assert len(cache) == 1
    with pytest.raises(TypeError):
        layer(x, mask, cache=cache)
    for wrong in (lambda: nn.MultiHeadAttention(6, 4), lambda: layer(remat.ones(4, 6)).tolist(), lambda: cache.truncate(3)):
        with pytest.raises(ValueError):
            wrong()


def test_blocks_train_and_evaluate(device):
    block, x = nn.EncoderBlock(8, 2, feedforward=16), remat.randn(2, 5, 8)
    assert block(x).tolist() != block(x).tolist()
    block.eval()
    assert block(x).tolist() == block(x).tolist()
    net = nn.EncoderDecoder(8, 2, encoders=1, decoders=1, feedforward=16, dropout=0.0)
    source, target = remat.randn(2, 5, 8), remat.randn(2, 3, 8)
    y = net(source, target)
    np.testing.assert_array_equal(net.decode(target, net.encode(source)).numpy(), y.numpy())
    y.sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    cross = nn.CrossAttention(8, 4, heads_kv=2, dropout=0.5)
    assert cross(target, source).shape == (2, 3, 8)


LOSSES = [
    (nn.SmoothL1Loss, 2), (nn.HuberLoss, 2), (nn.MSELoss, 2), (nn.L1Loss, 2), (nn.BCEWithLogitsLoss, 2), (nn.SoftMarginLoss, 2),
]


@pytest.mark.parametrize("of, n", LOSSES, ids=lambda o: getattr(o, "__name__", ""))
def test_losses_reduce_as_they_are_told(device, of, n):
    x = [remat.rand(4, 3) for _ in range(n)]
    each = of(reduction="none")(*x)
    assert each.shape == (4, 3)
    np.testing.assert_allclose(of()(*x).item(), each.numpy().mean(), rtol=1e-5)
    np.testing.assert_allclose(of("sum")(*x).item(), each.numpy().sum(), rtol=1e-5)
    with pytest.raises(ValueError, match="median"):
        of("median")(*x)
    with pytest.raises(TypeError, match="nothing"):
        of(nothing=1)
    with pytest.raises(ValueError):
        of()(x[0], remat.ones(5)).item()


def test_cross_entropy_takes_labels_probabilities_and_weights(device):
    logits, labels = remat.randn(5, 3), remat.tensor([0, 2, 1, 0, 2])
    each = nn.cross_entropy(logits, labels, "none").numpy()
    soft = remat.asarray(np.eye(3, dtype="float32")[labels.numpy()])
    np.testing.assert_allclose(nn.cross_entropy(logits, soft, "none").numpy(), each, rtol=1e-5)
    w = np.array([1.0, 2.0, 0.5], "float32")[labels.numpy()]
    got = nn.cross_entropy(logits, labels, weight=remat.tensor([1.0, 2.0, 0.5])).item()
    np.testing.assert_allclose(got, (each * w).sum() / w.sum(), rtol=1e-5)
    nll = nn.NLLLoss(ignore_index=1)(logits.log_softmax(-1), labels).item()
    np.testing.assert_allclose(nll, each[labels.numpy() != 1].mean(), rtol=1e-5)
    with pytest.raises(remat.Error, match="7"):
        nn.cross_entropy(logits, remat.tensor([0, 7, 0, 0, 0]), weight=remat.ones(3)).item()


def test_padding_modes_of_convolutions(device):
    x = remat.randn(1, 1, 5, 5)
    for mode, numpy_mode in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
        layer = nn.Conv2d(1, 2, 3, padding=1, padding_mode=mode)
        around = remat.asarray(np.pad(x.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), numpy_mode))
        plain = nn.Conv2d(1, 2, 3)
        plain.load_state_dict(layer.state_dict())
        np.testing.assert_allclose(layer(x).numpy(), plain(around).numpy(), rtol=1e-5, atol=1e-6)
    assert nn.Conv1d(1, 1, 4, padding="same")(remat.ones(1, 1, 7)).shape == (1, 1, 7)
    for wrong in (
        lambda: nn.Conv2d(1, 1, 3, padding="same", stride=2), lambda: nn.Conv2d(1, 1, 3, padding_mode="nothing"),
        lambda: nn.ConvTranspose1d(1, 1, 3, padding_mode="reflect"),
    ):
        with pytest.raises(ValueError):
            wrong()


def test_weights_that_are_functions_of_others(device):
    inner = nn.Linear(4, 3)
    before, x = inner(remat.ones(1, 4)).numpy(), remat.ones(1, 4)
    normed = nn.WeightNorm(inner)
    np.testing.assert_allclose(normed(x).numpy(), before, rtol=1e-5, atol=1e-6)
    assert [n for n, _ in normed.named_parameters()] == [
        "bias", "parametrizations.weight.original0", "parametrizations.weight.original1",
    ]
    optimizer = optim.SGD(normed, lr=0.1)
    normed(x).sum().backward()
    optimizer.step()
    assert (normed(x).numpy() != before).any()
    spectral = nn.SpectralNorm(nn.Linear(4, 3), n_power_iterations=20)
    weight = spectral.state_dict()["parametrizations.weight.original"].numpy()
    spectral(x)
    spectral.eval()
    eye = remat.eye(4)
    w = (spectral(eye) - spectral(remat.zeros(1, 4))).numpy().T
    np.testing.assert_allclose(w, weight / np.linalg.svd(weight)[1][0], rtol=1e-3, atol=1e-4)
    for wrong in (nn.Sequential(nn.Linear(1, 1)), nn.LSTM(1, 1), nn.ReLU()):
        with pytest.raises(TypeError):
            nn.WeightNorm(wrong)
    with pytest.raises(ValueError, match="nothing"):
        nn.WeightNorm(nn.Linear(2, 2), "nothing")


def test_pools_of_every_number_of_axes(device):
    x = remat.randn(2, 3, 8)
    np.testing.assert_array_equal(nn.MaxPool1d(2)(x).numpy(), x.numpy().reshape(2, 3, 4, 2).max(-1))
    np.testing.assert_allclose(nn.AvgPool1d(4)(x).numpy(), x.numpy().reshape(2, 3, 2, 4).mean(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(nn.LPPool1d(2.0, 2)(x).numpy(), np.linalg.norm(x.numpy().reshape(2, 3, 4, 2), axis=-1), rtol=1e-5)
    assert nn.MaxPool1d(3, ceil_mode=True)(x).shape == (2, 3, 3) and nn.MaxPool1d(3, dilation=2)(x).shape == (2, 3, 2)
    np.testing.assert_allclose(nn.AvgPool1d(2, padding=1, count_include_pad=False)(remat.ones(1, 1, 2)).numpy(), 1.0)
    np.testing.assert_allclose(nn.AvgPool1d(2, divisor_override=4)(remat.ones(1, 1, 2)).numpy(), 0.5)
    image = remat.randn(1, 3, 6, 6)
    np.testing.assert_allclose(nn.Fold(6, 2, stride=2)(nn.Unfold(2, stride=2)(image)).numpy(), image.numpy())
    assert nn.Upsample((12, 9), mode="linear")(image).shape == (1, 3, 12, 9)
    np.testing.assert_array_equal(
        nn.Pad2d([(1, 2), (0, 1)], "replicate")(image).numpy(), np.pad(image.numpy(), ((0, 0), (0, 0), (1, 2), (0, 1)), "edge")
    )
    for wrong in (lambda: nn.Upsample(), lambda: nn.Upsample(2, 2.0), lambda: nn.Pad1d(1, "nothing"), lambda: nn.MaxPool3d((2, 2))):
        with pytest.raises((ValueError, TypeError)):
            wrong()


def test_what_stands_around_a_step(device):
    net = nn.Linear(2, 1)
    average = optim.Average(net, decay=0.5)
    first = net.weight.numpy()
    average.update()
    net.weight.set_(remat.ones(1, 2))
    average.update()
    np.testing.assert_allclose(average.state_dict()["weight"].numpy(), 0.5 * first + 0.5, rtol=1e-5)
    average.swap()
    np.testing.assert_allclose(net.weight.numpy(), 0.5 * first + 0.5, rtol=1e-5)
    average.swap()
    assert net.weight.tolist() == [[1.0, 1.0]]
    other = optim.Average(net)
    other.load_state_dict(average.state_dict())
    assert other.state_dict()["n_averaged"].item() == 2
    with pytest.raises(ValueError):
        optim.Average(net, decay=2.0)

    with pytest.raises(ValueError):
        optim.Accumulate(0)
    with pytest.raises(ZeroDivisionError):
        optim.update_batch_norm(nn.BatchNorm1d(1), (1 / 0 for _ in range(2)))
    norm = nn.BatchNorm1d(1).eval()
    assert optim.update_batch_norm(norm, iter([remat.ones(2, 1)])) == 1 and not norm.training

    net.weight.set_(remat.tensor([[-3.0, 4.0]]))
    lbfgs = optim.LBFGS(net, max_iter=4, line_search_fn="strong_wolfe")
    x = remat.randn(8, 2)
    loss = lambda: nn.mse_loss(net(x), x.sum(axis=1, keepdims=True))  # noqa: E731
    before = lbfgs.step(loss)
    assert lbfgs.evaluations >= 2 and loss().item() < before
    again = optim.LBFGS(net)
    again.load_state_dict(lbfgs.state_dict())
    with pytest.raises(ZeroDivisionError):
        lbfgs.step(lambda: 1 / 0)
    with pytest.raises(TypeError):
        lbfgs.step(lambda: 1.0)
    with pytest.raises(ValueError, match="middle"):
        lbfgs.step(lambda: lbfgs.step(loss))
    lbfgs.step(loss)
    assert optim.Adafactor(net, lr=0.1).groups[0]["lr"] == 0.1
    plateau = optim.Plateau(1.0, patience=0)
    plateau.observe(1.0)
    other = optim.Plateau(5.0)
    other.load_state_dict(plateau.state_dict())
    assert other.observe(2.0) == plateau.observe(2.0) == 0.1
