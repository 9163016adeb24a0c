# differential: {"seed": 500005, "kind": "penalty", "precision": "float64", "random": false}
# form: {"share": 100, "foresight": "at_once", "async_level": "sync"}
# failed as hang: ended after 20.8 s
from differential.on_torch import *
D = F64

class Net1(nn.Module):

    def __init__(self):
        super().__init__()
        self.ls4 = nn.ModuleList([nn.Linear(8, 8, dtype=D), nn.Linear(8, 8, dtype=D)])
        self.w5 = parameter(500005001, 'w', 8, 16, dtype=D)
        self.k7 = nn.Conv1d(8, 16, 3, padding=1, dtype=D)
        self.l12 = nn.Linear(8, 12, dtype=D)
        self.l13 = nn.Linear(12, 12, dtype=D)
        self.n16 = nn.BatchNorm1d(12, dtype=D)
        self.n18 = nn.LayerNorm(8, dtype=D)
        self.l20 = nn.Linear(28, 6, dtype=D)

    def forward(self, x):
        v2 = x.mean(dim=1)
        h3 = v2
        for t in range(8):
            h3 = h3 + torch.tanh(self.ls4[t % len(self.ls4)](h3))
        v6 = v2 @ self.w5
        v8 = self.k7(x.swapaxes(1, 2)).swapaxes(1, 2)
        h9 = torch.zeros(x.shape[0], 12, dtype=D)
        o11 = []
        for t in range(x.shape[1]):
            z = torch.sigmoid(self.l12(x[:, t]) + self.l13(h9))
            r = torch.sigmoid(self.l12(x[:, t]) * h9)
            h9 = (1 - z) * torch.tanh(self.l12(x[:, t]) + self.l13(r * h9)) + z * h9
            o11.append(h9)
        v14 = v2.unsqueeze(2) * h9.unsqueeze(1)
        v15 = v14.sum(dim=2) * 0.3
        v17 = self.n16(h9)
        v19 = self.n18(v2)
        return self.l20(torch.cat([v19, v17, v15], dim=1))
net21 = fill(Net1(), 500005002)
opt22 = optim.Adamax(net21.parameters(), lr=0.01)
for k in steps(6):
    x = normal(50000500300 + k, 33, 16, 8, dtype=D).requires_grad_()
    y = net21(x)
    g, = grad(y.square().sum(), [x], create_graph=True)
    loss = F.mse_loss(y, normal(50000500500 + k, 33, 6, dtype=D)) + 0.36 * g.square().sum() / x.shape[0]
    loss.backward()
    if k == 5:
        note_gradients('net21', net21)
    if float(loss) < 1000000.0:
        opt22.step()
