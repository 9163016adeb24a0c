"""Plans the training step of a PyTorch network under a memory budget: which results to keep, and which to compute again.

    python python/examples/plan_torch_fx.py --budget 50% --out schedule.json

`make_fx` traces forward and backward of a small network to one graph of ATen's operators. Every node is run and timed; sizes are
those of its results. A node that gives a view of its first argument is one for the planner, too. Parameters and batch are there
before and stay. Needs PyTorch; nothing of the schedule is run with it: `remat plan --check schedule.json` replays it.
"""
import argparse
import time

import torch
from torch import nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

import remat.plan

RANDOM = ("rand", "dropout", "bernoulli")


def network(width, depth):
    layers = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def traced(net, x, labels):
    """The graph of loss and gradients, and the arguments that it takes."""
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def step(values, x, labels):
        values = {name: v.detach().requires_grad_() for name, v in values.items()}
        loss = nn.functional.cross_entropy(functional_call(net, values, (x,)), labels)
        return [loss.detach(), *torch.autograd.grad(loss, list(values.values()))]

    graph = make_fx(step)(parameters, x, labels)
    return graph, [*parameters.values(), x, labels]


def tensors_of(value):
    """The results of a node, by a suffix for their names."""
    if isinstance(value, torch.Tensor):
        return {"": value}
    if isinstance(value, (list, tuple)):
        return {f".{i}": v for i, v in enumerate(value) if isinstance(v, torch.Tensor)}
    return {}


class Timed(torch.fx.Interpreter):
    """Runs a graph some times, and keeps the shortest time and the results of each node."""

    def __init__(self, graph):
        super().__init__(graph, garbage_collect_values=False)
        self.times, self.results = {}, {}

    def run_node(self, n):
        begun = time.perf_counter_ns()
        result = super().run_node(n)
        took = time.perf_counter_ns() - begun
        self.times[n] = min(took, self.times.get(n, took))
        self.results[n] = result
        return result


def planned_graph(module, arguments, repeats=5):
    """The graph for the planner."""
    timed = Timed(module)
    for _ in range(repeats):
        timed.run(*arguments)
    graph = remat.plan.Graph()
    # the value that has a result's bytes, by the address of its storage
    owner, names = {}, {}
    for n in module.graph.nodes:
        results = tensors_of(timed.results[n])
        names[n] = [n.name + suffix for suffix in results]
        if n.op in ("placeholder", "get_attr"):
            for suffix, t in results.items():
                graph.value(n.name + suffix, t.untyped_storage().nbytes())
                owner[t.untyped_storage().data_ptr()] = n.name + suffix
        elif n.op == "call_function":
            inputs = [name for of in n.all_input_nodes for name in names[of]]
            outputs = {}
            for suffix, t in results.items():
                address = t.untyped_storage().data_ptr()
                alias = next((i for i in inputs if owner.get(address) == i or owner.get((address, i)) is not None), None)
                if alias is None:
                    outputs[n.name + suffix] = t.untyped_storage().nbytes()
                    owner[address] = n.name + suffix
                else:
                    outputs[n.name + suffix] = remat.plan.Output(alias_of=alias)
                    owner[(address, n.name + suffix)] = True
            repeatable = not any(word in str(n.target) for word in RANDOM)
            graph.op(n.name, inputs, outputs, timed.times[n], repeatable=repeatable)
        elif n.op == "output":
            graph.output(*dict.fromkeys(name for of in n.all_input_nodes for name in names[of]))
    return graph


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="50%", help="64MiB, for example, or a share of the peak without one")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", help="write the schedule with its graph to this file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    net = network(args.width, args.depth)
    x, labels = torch.randn(args.batch_size, 1, 28, 28), torch.randint(10, (args.batch_size,))
    graph = planned_graph(*traced(net, x, labels))
    schedule = graph.plan(args.budget)
    print(schedule.to_table(steps=None))
    if args.out:
        schedule.save(args.out)


if __name__ == "__main__":
    main()
