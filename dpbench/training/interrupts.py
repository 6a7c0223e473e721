"""Ctrl-C: the first one ends in order, the second one at once.

A command listens from its first line on. Outside of `orderly` there is nothing to put in order: the
process says one sentence and is gone. Within it the first interrupt raises KeyboardInterrupt, or,
where training steps are made, waits for the step to end (`between_steps`). The second one ends the
process and all that it has started.

Signals are heard by a thread, because Python hands them to the main one only between two of its
instructions, and one call of torch may take minutes.
"""

import atexit
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import NoReturn

from dpbench.errors import tell

RESUME_HINT = "interrupted; rerun the same command to resume."
PATIENCE = 1.0
"""Seconds of ending in order before the user is told that there is a quicker way."""


class Listener:
    """What a process does about the signals that ask it to end.

    quiet: says nothing, as in a process that another one speaks for.
    """

    def __init__(self, numbers: tuple[int, ...], quiet: bool):
        self._numbers, self._quiet = numbers, quiet
        self.orderly, self.stepping, self.asked, self.raised = 0, False, False, False
        self.number = 0  # of the first signal
        self._said = False
        self._ending = threading.Lock()
        self._ends, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def begin(self) -> Callable[[], None]:
        """Listen, and return what puts everything back."""
        handlers = {number: signal.signal(number, self._interrupt) for number in self._numbers}
        wakeup = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        self._thread.start()

        def end() -> None:
            signal.set_wakeup_fd(wakeup)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(self._wakes)
            self._thread.join()
            os.close(self._ends)

        return end

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """In the main thread."""
        self.number = self.number or number
        if self.asked or self.raised or not self.orderly:
            self._end(number)
        elif self.stepping:
            self.asked = True
        else:
            self.stop()

    def stop(self) -> None:
        """Raise KeyboardInterrupt."""
        self.raised = True
        raise KeyboardInterrupt

    def _watch(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        heard = 0
        while wakes := os.read(self._ends, 1):
            if wakes[0] not in self._numbers:
                continue
            heard += 1
            if heard > 1 or not (self.orderly or self.asked or self.raised):
                self._end(wakes[0])
            if not select.select([self._ends], [], [], PATIENCE)[0]:
                self._say("ending in order; interrupt again to end at once.")

    def _end(self, number: int) -> None:
        """At once, without a word to anybody but the user.

        Nothing may be imported here, nor waited for: the main thread may be in the middle of it.
        """
        self._ending.acquire()  # for good: the other thread must not get in the way of this one
        for process in descendants():
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        self.say_resume_hint()
        os._exit(128 + number)

    def say_resume_hint(self) -> None:
        """Once."""
        if not self._said:
            self._said = True
            self._say(RESUME_HINT)

    def _say(self, sentence: str) -> None:
        if self._quiet:
            return
        shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar has hidden the cursor
        with suppress(OSError):
            os.write(2, f"{shown}dpbench: {sentence}\n".encode())


def descendants() -> list[int]:
    """The processes that this one has started, and theirs; only Linux tells of the latter."""
    if not os.path.isdir("/proc/self"):
        known = sys.modules.get("multiprocessing")
        return [child.pid for child in known.active_children()] if known else []
    parents: dict[int, int] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # After the name of the program, which may hold anything: its state, and its parent.
            parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


_listener: Listener | None = None


@contextmanager
def listening(
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM), quiet: bool = False
) -> Iterator[None]:
    """Listen to the signals, but for those that whoever started this process has had it ignore."""
    global _listener
    main = threading.current_thread() is threading.main_thread()
    wanted = tuple(n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN)
    if _listener or not main or not wanted:
        yield
        return
    _listener = Listener(wanted, quiet)
    with ExitStack() as stack:
        stack.callback(_listener.begin())
        stack.callback(_forget)
        yield


def _forget() -> None:
    global _listener
    _listener = None


def leave() -> NoReturn:
    """Say so and end a process that was interrupted, and has put everything in order.

    Not as Python ends, which takes its modules apart for a second and hears nothing meanwhile.
    """
    if _listener is None or not _listener.number:
        tell(RESUME_HINT)
        sys.exit(128 + signal.SIGINT)
    _listener.say_resume_hint()
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(128 + _listener.number)


@contextmanager
def orderly() -> Iterator[None]:
    """There is something to put in order: the first interrupt raises KeyboardInterrupt here."""
    listener = _listener
    if listener is None:
        yield
        return
    listener.orderly += 1
    try:
        if listener.raised:  # and somebody has swallowed it
            raise KeyboardInterrupt
        yield
    finally:
        listener.orderly -= 1


@contextmanager
def between_steps() -> Iterator[Callable[[], bool]]:
    """Steps are made, and an interrupt waits for the present one to end.

    Yields whether there was one. On leaving, it raises KeyboardInterrupt then. Where nobody
    listens, Python interrupts a step as it does anything else.
    """
    listener = _listener
    if listener is None:
        yield lambda: False
        return
    listener.stepping = True
    try:
        yield lambda: listener.asked or listener.raised
    finally:
        listener.stepping = False
    if listener.asked or listener.raised:
        listener.stop()


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Processes that are started within do not hear Ctrl-C, which reaches all of a terminal's.

    Whoever starts them decides what becomes of them.
    """
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # which starts a process too, and unblocks SIGINT after that
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
