"""Runs as tasks of a Ray cluster, whose machines share the results folder."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dpbench.execution.attempt import attempt
from dpbench.execution.launcher import Attempts, Failure, Outcome
from dpbench.execution.run_config import RunConfig
from dpbench.system.errors import UserError, first_line, show_warnings_as_messages
from dpbench.system.validate import Count, Positive, Whole

GRACE = 10.0
"""Seconds for cancelled runs to finish their step and write a checkpoint."""


@dataclass(frozen=True)
class Ray:
    """Each run is a task; the sweep waits for it, and cancels it if interrupted.

    address: of the cluster, as `auto` on one of its machines; None for the one that RAY_ADDRESS
    names, else for processes on this machine. cpus, gpus, memory_gb: per task. retries: how often a
    task starts again, from its last checkpoint, if its machine is lost.
    """

    address: str | None
    cpus: Count
    gpus: Whole
    memory_gb: Positive
    retries: Whole

    @contextmanager
    def start(self, jobs: int, folder: Path) -> Iterator[Attempts[RunConfig]]:
        ray = _ray()
        try:
            ray.init(self.address, include_dashboard=False, log_to_driver=False)
        except ConnectionError as error:
            raise UserError(
                f"launcher=ray found no cluster at {self.address}: {first_line(error)}. Start one "
                "with ray start --head, or leave launcher.address=null to use this machine."
            ) from error
        remote = ray.remote(
            num_cpus=self.cpus,
            num_gpus=self.gpus,
            memory=int(self.memory_gb * 2**30),
            max_retries=self.retries,
        )(_task)
        waiting: list = []

        def attempts(runs: Sequence[RunConfig], wait: bool) -> Iterator[tuple[int, Outcome]]:
            indices = {remote.remote(run, wait): index for index, run in enumerate(runs)}
            waiting[:] = indices
            while waiting:
                (done,), waiting[:] = ray.wait(waiting)
                yield indices[done], _outcome(done)

        try:
            yield attempts
        finally:
            for task in waiting:
                ray.cancel(task)
            if waiting:
                ray.wait(waiting, num_returns=len(waiting), timeout=GRACE)
            ray.shutdown()


def _task(run: RunConfig, wait: bool) -> Outcome:
    show_warnings_as_messages()
    return attempt(run, wait)


def _outcome(task) -> Outcome:
    ray = _ray()
    try:
        return ray.get(task)
    except ray.exceptions.RayError as error:
        return Failure(f"its task failed: {first_line(error)}.", str(error))


def _ray():
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "launcher=ray needs Ray, which is not installed: pip install 'dpbench-suite[ray]'."
        ) from error
    return ray
