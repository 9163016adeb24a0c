# differential: {"seed": 17, "kind": "alternating", "precision": "float64", "random": false}
# form: {"share": 50, "foresight": "beside", "async_level": "sync"}
from differential.on_torch import *

D = F64


class Net1(nn.Module):
    def __init__(self):
        super().__init__()
        self.n2 = nn.LayerNorm(16, dtype=D)
        self.l7 = nn.Linear(16, 16, dtype=D)
        self.l10 = nn.Linear(48, 6, dtype=D)

    def forward(self, x):
        v3 = self.n2(x)
        h4 = v3
        for t in range(12):
            v5 = F.elu(h4)
            v6 = self.l7(v5)
            v8 = v6.clamp(-1.5, 1.5)
            h4 = v8
        v9 = h4 - x
        return self.l10(torch.cat([v9, h4, v3], dim=1))


class Net12(nn.Module):
    def __init__(self):
        super().__init__()
        self.l15 = nn.Linear(6, 6, dtype=D)
        self.l20 = nn.Linear(18, 6, dtype=D)

    def forward(self, x):
        h13 = x
        m14 = torch.zeros_like(h13)
        for t in range(12):
            m14 = 0.8 * m14 - 0.2 * torch.tanh(self.l15(h13))
            h13 = h13 + m14
        v16 = 0.3 * x.cumsum(-1)
        v17 = v16.sigmoid() * x
        v18 = v17 / (1.0 + v17.abs())
        v19 = x + v18
        return self.l20(torch.cat([v19, h13, x], dim=1))


net11 = fill(Net1(), 17001)
net21 = fill(Net12(), 17002)
opt22 = optim.NAdam(net11.parameters(), lr=0.01)
opt23 = optim.SGD(net21.parameters(), lr=0.1)
for k in steps(4):
    x = normal(1700300 + k, 8, 16, dtype=D)
    loss = (net21(net11(x))).square().mean()
    loss.backward()
    if k % 2 == 0:
        opt22.step()
    else:
        opt23.step()
    opt22.zero_grad()
    opt23.zero_grad()
    keep('loss', loss)
note_all('net11', net11)
note_all('net21', net21)

