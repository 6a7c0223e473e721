"""Pages in Markdown on a terminal, laid out by rich; in a pipe or a file they are as they are."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

from dpbench.system.errors import visible


def on_terminal() -> bool:
    """Whether somebody reads what is printed, rather than a program."""
    return sys.stdout.isatty()


@contextmanager
def output_kept() -> Iterator[TextIO | None]:
    """The output that a program reads, to which nothing else is printed in the context: what
    plug-ins print is shown beside the messages. None on a terminal, where nothing is changed."""
    output = sys.stdout
    if not output or output.isatty():
        yield None
        return
    with redirect_stdout(sys.stderr):
        yield output


def show(page: str) -> None:
    """Print a page in Markdown."""
    if not on_terminal():
        print(page, end="" if page.endswith("\n") else "\n")
        return
    # The command's stream shows what controls a terminal as an escape, which rich needs to write.
    write = getattr(sys.stdout, "write_styled", sys.stdout.write)
    write(laid_out(visible(page)))


def laid_out(page: str, width: int | None = None) -> str:
    """A page as text with the codes of a terminal; width: in characters, by default its own."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    with console.capture() as captured:
        console.print(Markdown(page))
    return captured.get()
