"""Keeps tests, and the processes that they start, from going on for ever."""

import signal
import subprocess
from contextlib import contextmanager

SECONDS = 600
"""How long a process may take; a test may take twice as long: `faulthandler_timeout`."""


class LimitedProcess(subprocess.Popen):
    """A process that is killed after SECONDS in which somebody waits for it without a limit."""

    def wait(self, timeout=None):
        with self._limit(timeout) as seconds:
            return super().wait(seconds)

    def communicate(self, input=None, timeout=None):
        with self._limit(timeout) as seconds:
            return super().communicate(input, seconds)

    @contextmanager
    def _limit(self, given):
        try:
            yield SECONDS if given is None else given
        except subprocess.TimeoutExpired:
            if given is None:
                self.kill()
            raise


def hear_signals():
    """Signals as in a terminal, here and in processes started here: a background job of a script
    ignores SIGINT, and a command under nohup SIGHUP, which this process goes on to outlive."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: lambda *_: None}
    for number, handler in handlers.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
