"""Ctrl-C: the first one exits gracefully, the second one immediately.

SIGTERM and SIGHUP are as the first one, however often they come: a group of processes is sent them
more than once, and who loses patience sends SIGKILL.

A command listens from its start. Outside `graceful_interrupts` there is nothing to clean up: the
process prints one sentence and exits. Within it the first interrupt raises KeyboardInterrupt, or,
during training, after the current step (`between_steps`). The second one kills the process and all
of its descendants.

A thread watches for signals, because Python delivers them to the main thread only between two
bytecode instructions, and one call of torch may take minutes.
"""

import atexit
import gc
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import NoReturn

from dpbench.system.errors import print_message

RESUME_HINT = "interrupted; rerun the same command to resume."
PATIENCE = 1.0
"""Seconds that a graceful exit may take before the user is told how to exit immediately."""


class Listener:
    """Handles the signals that ask a process to exit.

    quiet: prints nothing, as in a worker process.
    """

    def __init__(self, numbers: tuple[int, ...], quiet: bool):
        self._numbers, self._quiet = numbers, quiet
        self.graceful = 0  # nested contexts
        self.stepping, self.stop_requested, self.stop_raised = False, False, False
        self.first_signal = 0
        self._hint_shown = False
        self._exiting = threading.Lock()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def begin(self) -> Callable[[], None]:
        """Start listening; returns a function that restores the previous handlers."""
        handlers = {number: signal.signal(number, self._interrupt) for number in self._numbers}
        wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._thread.start()

        def end() -> None:
            signal.set_wakeup_fd(wakeup)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(self._write_end)
            self._thread.join()
            os.close(self._read_end)

        return end

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """The signal handler, in the main thread."""
        self.first_signal = self.first_signal or number
        if number == signal.SIGINT if self._stopping else not self.graceful:
            self._exit(number)
        elif self.stepping:
            self.stop_requested = True
        elif not self._stopping:
            self.stop()

    @property
    def _stopping(self) -> bool:
        return self.stop_requested or self.stop_raised

    def stop(self) -> None:
        """Raise KeyboardInterrupt."""
        self.stop_raised = True
        raise KeyboardInterrupt

    def _watch(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        count = 0
        while data := os.read(self._read_end, 1):
            if data[0] not in self._numbers:
                continue
            count += 1
            again = count > 1 and data[0] == signal.SIGINT
            if again or not (self.graceful or self._stopping):
                self._exit(data[0])
            if not select.select([self._read_end], [], [], PATIENCE)[0]:
                self._print("finishing; interrupt again to exit immediately.")

    def _exit(self, number: int) -> None:
        """Kill all descendants and exit immediately.

        Must not import anything or wait for locks: the main thread may hold them.
        """
        self._exiting.acquire()  # never released: only one thread may run this
        for process in descendants():
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
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


def descendants() -> list[int]:
    """Process ids of all descendants of this process; without /proc, of its children only."""
    if not os.path.isdir("/proc/self"):
        multiprocessing = sys.modules.get("multiprocessing")
        return [child.pid for child in multiprocessing.active_children()] if multiprocessing else []
    parents: dict[int, int] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # The fields after the program's name, which may contain anything: state, parent.
            parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    family = [os.getpid()]
    for process in family:
        family += [child for child, parent in parents.items() if parent == process]
    return family[1:]


_listener: Listener | None = None


@contextmanager
def listening(
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), quiet: bool = False
) -> Iterator[None]:
    """Listen to the signals, except for those that the parent process set to be ignored."""
    global _listener
    main = threading.current_thread() is threading.main_thread()
    handled = tuple(n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN)
    if _listener or not main or not handled:
        yield
        return
    _listener = Listener(handled, quiet)
    with ExitStack() as stack:
        stack.callback(_listener.begin())
        stack.callback(_forget)
        yield


def _forget() -> None:
    global _listener
    _listener = None


def hung_up() -> bool:
    """Whether this process ends because its terminal was closed: what runs elsewhere may go on."""
    return _listener is not None and _listener.first_signal == signal.SIGHUP


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
        if listener.stop_raised:  # and the exception was swallowed
            raise KeyboardInterrupt
        yield
    finally:
        listener.graceful -= 1


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
        yield lambda: listener.stop_requested or listener.stop_raised
    finally:
        listener.stepping = False
    if listener.stop_requested or listener.stop_raised:
        listener.stop()


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Processes started within the context ignore Ctrl-C and the end of the terminal, which sends
    both to all of them.

    Their parent decides when they exit.
    """
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # otherwise started later, which would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
