"""Ctrl-C: the first one exits gracefully, the second one immediately.

Other signals that ask a process to exit are as the first one, however often they come. Within
`graceful_interrupts` that one raises KeyboardInterrupt, or, during training, sets the flag that
`between_steps` reads. Outside there is nothing to clean up: the process prints one sentence and
exits. A signal waits for the end of the present call of torch.
"""

import atexit
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from dpbench.system.errors import print_message

RESUME_HINT = "interrupted; rerun the same command to resume."
PATIENCE = 1.0
"""Seconds that a graceful exit may take before the user is told how to exit immediately."""


class Listener:
    """Handles the signals that ask a process to exit; quiet: prints nothing, as in a worker
    process."""

    def __init__(self, quiet: bool):
        self._quiet = quiet
        self.graceful = 0  # nested contexts
        self.stepping = False
        self.first_signal = 0
        self._hint_shown = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.first_signal:
            if number == signal.SIGINT:
                self._exit(number)
            return
        self.first_signal = number
        if not self.graceful:
            self._exit(number)
            return
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        if not self.stepping:
            raise KeyboardInterrupt

    def say_how_to_exit(self, number: int, frame: FrameType | None) -> None:
        """The handler of the timer that the first interrupt sets."""
        self._print("finishing; interrupt again to exit immediately.")

    def _exit(self, number: int) -> None:
        """Kill the child processes and exit immediately.

        Imports nothing: the interrupted code may be in the middle of the same import.
        """
        children = getattr(sys.modules.get("multiprocessing"), "active_children", list)
        for child in children():
            with suppress(OSError):
                os.kill(child.pid, signal.SIGKILL)
        self.say_resume_hint()
        os._exit(128 + number)

    def say_resume_hint(self) -> None:
        """Print the hint, once."""
        if not self._hint_shown:
            self._hint_shown = True
            self._print(RESUME_HINT)

    def _print(self, sentence: str) -> None:
        if self._quiet:
            return
        # A progress bar may have hidden the cursor.
        show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        with suppress(OSError):
            os.write(2, f"{show_cursor}dpbench: {sentence}\n".encode())


_listener: Listener | None = None

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
"""The signals that ask a process to exit."""


@contextmanager
def listening(numbers: tuple[int, ...] = SIGNALS, quiet: bool = False) -> Iterator[None]:
    """Listen to the signals, except for those that the parent process set to be ignored."""
    global _listener
    main = threading.current_thread() is threading.main_thread()
    handled = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
    if _listener or not main or not handled:
        yield
        return
    _listener = Listener(quiet)
    handlers = {number: signal.signal(number, _listener.interrupt) for number in handled}
    handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, _listener.say_how_to_exit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _listener = None


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Restores the handlers of signals that a library replaces within the context."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


def hung_up() -> bool:
    """Whether this process ends because its terminal was closed: what runs elsewhere may go on."""
    return _listener is not None and _listener.first_signal == signal.SIGHUP


def end_with(parent: int) -> None:
    """Send this process SIGTERM once its parent is gone: nobody waits for what it does."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def exit_sooner() -> None:
    """Skip Python's garbage collection at exit, which takes half a second if torch is imported.

    Exit handlers that are registered later still run, before it.
    """
    atexit.register(gc.freeze)


def exit_interrupted() -> NoReturn:
    """Print the hint and exit an interrupted process after its clean-up.

    Skips Python's finalisation, which takes a second during which signals are not handled.
    """
    if _listener is None or not _listener.first_signal:
        print_message(RESUME_HINT)
        sys.exit(128 + signal.SIGINT)
    _listener.say_resume_hint()
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(128 + _listener.first_signal)


@contextmanager
def graceful_interrupts() -> Iterator[None]:
    """Within the context, the first interrupt raises KeyboardInterrupt, so that it can clean up."""
    listener = _listener
    if listener is None:
        yield
        return
    listener.graceful += 1
    try:
        if listener.first_signal:  # and the exception was swallowed
            raise KeyboardInterrupt
        yield
    except ImportError as error:
        raise_if_interrupted(error)
        raise
    finally:
        listener.graceful -= 1


def raise_if_interrupted(error: BaseException) -> None:
    """Raise the interrupt again that an extension in C made an ImportError of."""
    raised = _listener and _listener.first_signal and not _listener.stepping
    if raised and isinstance(error, ImportError):
        raise KeyboardInterrupt from error


@contextmanager
def between_steps() -> Iterator[Callable[[], bool]]:
    """Within the context, an interrupt waits for the current training step to end.

    Yields a function that returns whether there was an interrupt; on exit it then raises
    KeyboardInterrupt. Without a listener, Python's default handling applies.
    """
    listener = _listener
    if listener is None:
        yield lambda: False
        return
    listener.stepping = True
    try:
        yield lambda: bool(listener.first_signal)
    finally:
        listener.stepping = False
    if listener.first_signal:
        raise KeyboardInterrupt


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Processes started within the context ignore Ctrl-C, the end of the terminal and SIGUSR2,
    which are sent to all of them: their parent decides when they exit."""
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # otherwise started later, which would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*SIGNALS} - {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
