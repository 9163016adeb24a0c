# differential: {"seed": 640041, "kind": "by_hand", "precision": "float32", "random": false}
# form: {"share": 33, "foresight": "beside", "async_level": "full"}
# failed as hang: ended after 91.6 s
from differential.on_torch import *

D = F32

class Scaled(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * 1.0

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None


class Bent(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1.0, 1.0)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * torch.exp(-x * x)


class Squared(Function):
    @staticmethod
    def forward(ctx, x):
        # what is made here and saved has no gradient of its own, which Remat says and PyTorch does not
        ctx.save_for_backward(x)
        return torch.tanh(x).square()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        y = torch.tanh(x)
        return dy * 2 * y * (1 - y * y)


class Halves(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 0.5, torch.sin(x)

    @staticmethod
    def backward(ctx, da, db):
        (x,) = ctx.saved_tensors
        return da * 0.5 + db * torch.cos(x)


class Net1(nn.Module):
    def __init__(self):
        super().__init__()
        self.e2 = nn.Embedding(11, 3, dtype=D)
        self.cell7 = nn.GRUCell(3, 16, dtype=D)
        self.l14 = nn.Linear(48, 3, dtype=D)

    def forward(self, x):
        v3 = self.e2(x)
        h4 = torch.zeros(x.shape[0], 16, dtype=D)
        o6 = []
        for t in range(v3.shape[1]):
            h4 = self.cell7(v3[:, t], h4)
            o6.append(h4)
        v8 = sum(o6) / len(o6)
        v9 = Squared.apply(v8)
        v10 = v8 + v9
        v11 = v10.clone()
        v11 += v10
        v11[0] = 0.0
        a12 = (0.3 * v10 @ v10.t()).softmax(dim=1)
        v13 = a12 @ v10
        return self.l14(torch.cat([v13, v11, v10], dim=1))


net15 = fill(Net1(), 640041001)
ps = list(net15.parameters())
ms = [torch.zeros_like(p).detach() for p in ps]
for k in steps(8):
    x = integers(64004100200 + k, 11, 16, 16)
    loss = 0.0078125 * F.l1_loss((net15(x)), normal(64004100400 + k, 16, 3, dtype=D), reduction='sum')
    loss.backward()
    gs = [torch.zeros_like(p) if p.grad is None else p.grad for p in ps]
    for p in ps:
        p.grad = None
    with torch.no_grad():
        for i, (p, g) in enumerate(zip(ps, gs)):
            ms[i] = 0.9 * ms[i] + g
            assign(p, p - 0.02 * ms[i])
    keep('loss', loss)
    net15.eval()
    with torch.no_grad():
        seen = net15(x)
        pass
    net15.train()
note_all('net15', net15)
