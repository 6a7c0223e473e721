"""The adjoints of outputs, some of which are given away in the middle of a backward pass."""

import gc
import weakref

import pytest
import torch

from dpbench.step.gradients.backward import Output, adjoints


class Pass:
    """Outputs x1 -> x2 -> x3 with a branch from x1 to x3, one that nothing depends on, and their
    total."""

    def __init__(self):
        weight = torch.linspace(0.5, 1, 4, requires_grad=True)
        self.x1 = weight * torch.arange(4.0)
        self.x2 = self.x1.sin()
        self.x3 = self.x2 * self.x1
        self.total = self.x3.square().sum()
        self.named = {"x1": self.x1, "x2": self.x2, "x3": self.x3, "apart": weight.exp()}

    @property
    def outputs(self):
        return {name: Output.of(x) for name, x in self.named.items()}

    def expected(self):
        xs = [*self.named.values()]
        gradients = torch.autograd.grad(self.total, xs, retain_graph=True, allow_unused=True)
        return dict(zip(self.named, gradients, strict=True))


@pytest.mark.parametrize("early", [(), ("x1",), ("x2", "apart"), ("x1", "x2", "x3", "apart")])
def test_each_adjoint_is_found_or_received_once(early):
    made, received = Pass(), []
    expected = made.expected()
    receivers = {name: lambda b, name=name: received.append((name, b)) for name in early}
    found = adjoints(made.total, made.outputs, receivers)
    together = {**found, **dict(received)}
    assert len(received) == len({*early} - {"apart"})
    assert {*found} & {name for name, _ in received} == set()
    for name, adjoint in expected.items():
        same = adjoint is together[name] if adjoint is None else adjoint.equal(together[name])
        assert same, name


def test_what_is_received_is_not_kept_for_the_rest_of_the_pass():
    made, alive = Pass(), {}

    def receive(name, adjoint):
        assert all(before() is None for before in alive.values()), name
        alive[name] = weakref.ref(adjoint)

    receivers = {name: lambda b, name=name: receive(name, b) for name in ("x2", "x3")}
    adjoints(made.total, made.outputs, receivers)
    assert [*alive] == ["x3", "x2"]


def test_the_graph_does_not_refer_to_itself_afterwards():
    class Receiver:
        def __init__(self, outputs):
            self.outputs = outputs

        def __call__(self, adjoint):
            pass

    made = Pass()
    receiver = Receiver(made.outputs)
    adjoints(made.total, receiver.outputs, {"x2": receiver, "x3": receiver})
    gone = weakref.ref(receiver)
    gc.disable()
    try:
        del made, receiver
        assert gone() is None
    finally:
        gc.enable()


def test_an_error_of_a_receiver_leaves_no_hook_behind():
    made = Pass()

    def fail(adjoint):
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        adjoints(made.total, made.outputs, {"x2": fail})
    again = Pass()
    made.total = again.x3.sum() + made.x2.sum()  # through the node of the failure
    assert adjoints(made.total, {"x1": Output.of(made.x1)}, {})["x1"] is not None
