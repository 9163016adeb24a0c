# differential: {"seed": 21, "kind": "supervised", "precision": "float64", "random": false}
# form: {"share": 50, "foresight": "off", "async_level": "sync"}
from differential.on_torch import *

D = F64


class Net1(nn.Module):
    def __init__(self):
        super().__init__()
        self.l3 = nn.Linear(12, 3, dtype=D)
        self.l6 = nn.Linear(12, 8, dtype=D)
        self.r9 = nn.RNN(12, 3, num_layers=1, batch_first=True, bidirectional=False, dtype=D)
        self.l13 = nn.Linear(8, 8, dtype=D)
        self.w20 = parameter(21001, 'w', 12, 12, dtype=D)
        self.w21 = parameter(21002, 'w', 12, 12, dtype=D)
        self.l25 = nn.Linear(12, 12, dtype=D)
        self.w27 = parameter(21003, 'w', 12, dtype=D)
        self.l29 = nn.Linear(32, 6, dtype=D)

    def forward(self, x):
        v2 = amax(x, dim=1)
        v4 = self.l3(v2)
        v5 = v2.clone()
        v5[1:] = v2[:-1]
        v5[v5 > 1.0] = 0.5
        v7 = self.l6(v5)
        v8, _ = self.r9(x)
        v10 = torch.atan(v7)
        v11 = v10.clone()
        v12 = self.l13(v11)
        v14 = self.l13(v12)
        v15 = torch.tanh(v14)
        v16 = v10 + v15
        h17 = torch.zeros(x.shape[0], 12, dtype=D)
        o19 = []
        for t in range(x.shape[1]):
            h17 = torch.tanh(x[:, t] @ self.w20 + h17 @ self.w21)
            o19.append(h17)
        h22 = h17
        for t in range(6):
            v23 = F.softplus(h22)
            v24 = self.l25(v23)
            v26 = v24 * self.w27
            v28 = torch.tanh(v26)
            h22 = h22 * v28.sigmoid()
        return self.l29(torch.cat([h22, h17, v16], dim=1))


net30 = fill(Net1(), 21004)
opt31 = optim.Adam(net30.parameters(), lr=0.01, amsgrad=True)
for k in steps(8):
    x = normal(2100500 + k, 64, 3, 12, dtype=D)
    y = net30(x)
    loss = (y * normal(2100700 + k, 64, 6, dtype=D)).sum(dim=1).abs().mean()
    opt31.zero_grad()
    loss.backward()
    if k == 7:
        note_gradients('net30', net30)
    opt31.step()
    note('loss', loss.detach())
note_all('net30', net30)

