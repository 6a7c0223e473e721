"""The base of modes that see every operation of a pass."""

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A mode of eager passes: importing torch's compiler, to exclude it, would take a second."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
