# differential: {"seed": 700352, "kind": "alternating", "precision": "float32", "random": false}
# form: {"share": 60, "foresight": "off", "async_level": "full"}
# failed as verdict: 60 % of its peak, sync, foresight off: refused; 60 % of its peak, full, foresight off: ran
from differential.on_torch import *

D = F32


class Net1(nn.Module):
    def __init__(self):
        super().__init__()
        self.w7 = parameter(700352001, 'w', 8, 12, dtype=D)
        self.w8 = parameter(700352002, 'w', 12, 12, dtype=D)
        self.l13 = nn.Linear(8, 8, dtype=D)
        self.l14 = nn.Linear(8, 8, dtype=D)
        self.w19 = parameter(700352003, 'w', 12, 8, dtype=D)
        self.w20 = parameter(700352004, 'w', 8, 8, dtype=D)
        self.l23 = nn.Linear(24, 6, dtype=D)

    def forward(self, x):
        v2 = x[:, -1]
        v3 = v2 * amax(v2, 1).unsqueeze(1).sigmoid()
        h4 = torch.zeros(x.shape[0], 12, dtype=D)
        o6 = []
        for t in range(x.shape[1]):
            h4 = torch.tanh(x[:, t] @ self.w7 + h4 @ self.w8)
            if t % 3 == 2:
                h4 = h4.detach()
            o6.append(h4)
        v9 = torch.stack(o6, dim=1)
        with torch.no_grad():
            v10 = v3.sigmoid().mean(dim=0)
        v11 = v3 * v10
        h12 = v2
        for t in range(8):
            g15 = torch.sigmoid(self.l13(h12))
            h12 = g15 * torch.tanh(self.l14(h12)) + (1 - g15) * h12
        h16 = torch.zeros(x.shape[0], 8, dtype=D)
        o18 = []
        for t in range(v9.shape[1]):
            h16 = torch.tanh(v9[:, t] @ self.w19 + h16 @ self.w20)
            if len(o18) > 1:
                h16 = h16 + 0.3 * o18[-2]
            o18.append(h16)
        def f21(y, depth):
            if depth == 0:
                return torch.sin(self.l14(y))
            return torch.tanh(f21(y, depth - 1) + y)
        v22 = f21(v3, 3)
        return self.l23(torch.cat([v22, h16, h12], dim=1))


class Net25(nn.Module):
    def __init__(self):
        super().__init__()
        self.l28 = nn.Linear(18, 6, dtype=D)

    def forward(self, x):
        v26 = torch.roll(x, 1, -1)
        v27 = v26.clone()
        return x + self.l28(torch.cat([v27, v26, x], dim=1))


net24 = fill(Net1(), 700352005)
net29 = fill(Net25(), 700352006)
opt30 = optim.Adam(net24.parameters(), lr=0.003, betas=(0.5, 0.9))
opt31 = optim.SGD(net29.parameters(), lr=0.05)
for k in steps(6):
    try:
        x = normal(70035200700 + k, 16, 3, 8, dtype=D)
        if k == 3:
            torch.zeros(2, 3, dtype=D) + torch.zeros(4, dtype=D)
        loss = (net29(net24(x))).square().mean()
        loss.backward()
        opt30.step()
        if k % 2 == 1:
            opt31.step()
    except SHAPE_ERROR:
        net24.zero_grad()
        net29.zero_grad()
        continue
    note('loss', loss)
note_all('net24', net24)
note_all('net29', net29)
