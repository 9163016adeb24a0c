# differential: {"seed": 500016, "kind": "teacher", "precision": "float64", "random": false}
# form: {"share": 75, "foresight": "off", "async_level": "launched"}
# failed as panic: InternalError: step 3 was not taken: what the schedule has at once did not fit
from differential.on_torch import *
D = F64

class Net1(nn.Module):

    def __init__(self):
        super().__init__()
        self.e2 = nn.Embedding(11, 12, dtype=D)
        self.l6 = nn.Linear(12, 12, dtype=D)
        self.w7 = parameter(500016001, 'w', 12, 1, dtype=D)
        self.w12 = parameter(500016002, 'w', 1, dtype=D)
        self.cell21 = nn.LSTMCell(12, 4, dtype=D)
        self.l22 = nn.Linear(1, 12, bias=False, dtype=D)
        self.l26 = nn.Linear(28, 4, dtype=D)

    def forward(self, x):
        v3 = self.e2(x)
        v4 = amax(v3, dim=1)
        v8 = v4 @ self.w7
        v11 = v8
        v13 = v11
        v10 = v13
        h18 = torch.zeros(x.shape[0], 4, dtype=D)
        c19 = torch.zeros(x.shape[0], 4, dtype=D)
        o20 = []
        for t in range(v3.shape[1]):
            h18, c19 = self.cell21(v3[:, t], (h18, c19))
        v23 = self.l22(v10)
        a24 = 0.3 * v23 @ v23.t()
        v25 = a24 @ v23
        return self.l26(torch.cat([v25, v23, h18], dim=1))
net27 = fill(Net1(), 500016004)
net28 = fill(Net1(), 500016004)
opt29 = optim.SGD(net27.parameters(), lr=0.03, momentum=0.8, nesterov=True, weight_decay=0.01)
for k in steps(2):
    x = integers(50001600500 + k, 2, 2, 12)
    with torch.no_grad():
        target = net28(x)
    y = net27(x)
    loss = F.mse_loss(y, target) + F.cross_entropy(y, integers(50001600600 + k, 2, y.shape[0])) + 0.001 * sum((p.square().sum() for p in net27.parameters()))
    loss.backward()
    opt29.step()
