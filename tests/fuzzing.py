"""What a drawn case may come to: a result, or one sentence, and soon."""

import signal
import warnings
from collections.abc import Callable
from contextlib import contextmanager

from dpbench.system.errors import UserError

SECONDS = 20
"""Of this process for one case: accountants are the slowest of what is asked."""


@contextmanager
def limited():
    """Ends with an error what takes longer than SECONDS of this process, or waits."""

    def late(*_):
        raise TimeoutError(f"more than {SECONDS} s")

    timers = ((signal.SIGVTALRM, signal.ITIMER_VIRTUAL, 1), (signal.SIGALRM, signal.ITIMER_REAL, 9))
    before = [signal.signal(name, late) for name, _, _ in timers]
    for _, timer, times in timers:
        signal.setitimer(timer, times * SECONDS)
    try:
        yield
    finally:
        for (name, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(name, handler)


def fault(case: Callable[[], object]) -> str | None:
    """Why a case is none that a user may see; None if it ends, or is refused in one sentence."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case()
    except UserError as refusal:
        said = str(refusal)
        whole = said.strip() and "\n" not in said and len(said) < 1000
        return None if whole else f"it is said in {len(said)} characters: {said[:300]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return None
