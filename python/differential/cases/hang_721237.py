# differential: {"seed": 721237, "kind": "teacher", "precision": "float64", "random": false}
# form: {"least": true, "foresight": "off", "async_level": "launched"}
# failed as hang: ended after 62.8 s
from differential.on_torch import *

D = F64


class Net1(nn.Module):
    def __init__(self):
        super().__init__()
        self.l6 = nn.Linear(12, 32, dtype=D)
        self.l7 = nn.Linear(8, 32, dtype=D)
        self.w8 = parameter(721237001, 'w', 8, dtype=D)
        self.l9 = nn.Linear(8, 12, bias=False, dtype=D)
        self.cell15 = nn.GRUCell(4, 3, dtype=D)
        self.l17 = nn.Linear(3, 3, bias=False, dtype=D)
        self.cell23 = nn.LSTMCell(3, 3, dtype=D)
        self.cell24 = nn.LSTMCell(3, 3, dtype=D)
        self.l27 = nn.Linear(9, 12, dtype=D)

    def forward(self, x):
        v2 = torch.zeros_like(x)
        v2[1:] = x[:-1]
        v2 -= x.mean()
        h3 = torch.zeros(x.shape[0], 8, dtype=D)
        c4 = torch.zeros(x.shape[0], 8, dtype=D)
        o5 = []
        for t in range(12):
            i, f, g, o = (self.l6(x) + self.l7(h3)).chunk(4, 1)
            f = torch.sigmoid(f + self.w8 * c4)
            c4 = f * c4 + torch.sigmoid(i) * torch.tanh(g)
            h3 = torch.sigmoid(o) * torch.tanh(c4)
            o5.append(h3)
        v10 = self.l9(h3)
        v11 = h3[:, ::2]
        h12 = torch.zeros(x.shape[0], 3, dtype=D)
        o14 = []
        for t in range(3):
            h12 = self.cell15(v11, h12)
            v16 = self.l17(h12)
            v18 = v16 / (1.0 + v16.abs())
            h12 = 0.5 * (h12 + v18)
            o14.append(h12)
        v19 = sum(o14) / len(o14)
        h20 = torch.zeros(x.shape[0], 3, dtype=D)
        c21, c26, h25 = torch.zeros(x.shape[0], 3, dtype=D), torch.zeros(x.shape[0], 3, dtype=D), torch.zeros(x.shape[0], 3, dtype=D)
        o22 = []
        for t in range(3):
            h25, c26 = self.cell23(h12, (h25, c26))
            h20, c21 = self.cell24(h25, (h20, c21))
            if len(o22) > 1:
                h20 = h20 + 0.3 * o22[-2]
            o22.append(h20)
        return x + self.l27(torch.cat([h20, h12, v19], dim=1))


net28 = fill(Net1(), 721237002)
net29 = fill(Net1(), 721237002)
opt30 = optim.Adamax(net28.parameters(), lr=0.01)
ema31 = [p.detach().clone() for p in net29.parameters()]
history32 = []
for k in steps(5):
    x = normal(72123700300 + k, 64, 12, dtype=D)
    with torch.no_grad():
        target = net29(x)
    y = net28(x)
    loss = F.mse_loss(y, target) + torch.logsumexp(y, dim=1).mean()
    loss.backward()
    if k == 4:
        note_gradients('net28', net28)
    opt30.step()
    for p, q in zip(net29.parameters(), net28.parameters()):
        assign(p, 0.8 * p.detach() + 0.2 * q.detach())
    note('loss', loss.detach())
    ema31 = [0.9 * e + 0.1 * p.detach() for e, p in zip(ema31, net29.parameters())]
    history32.append(2.0 * loss)
    net28.eval()
    with torch.no_grad():
        seen = net28(x)
        note('evaluated', seen.mean())
    net28.train()
for e in ema31:
    note('ema31', e)
note('history32', sum(history32) / len(history32))
note_all('net28', net28)
note_all('net29', net29)
