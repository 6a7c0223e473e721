"""Display names of methods, from the first lines of their YAML files: `# Name: DP-SGD`."""

import functools
import re
from pathlib import Path

from dpbench.config.search_path import file_of
from dpbench.config.settings import CORRECTED

NAME = re.compile(r"#\s*Name:\s*(\S.*?)\s*$")
PLAIN = re.compile(r"\w+")


def method_name(method: str) -> str:
    """The display name of a method; the name of the option if its file gives none."""
    # Options are file names; a record may contain anything.
    path = file_of("method", method) if PLAIN.fullmatch(method) else None
    return (path and _name_in(path)) or method


def with_variant(name: str, variant: str) -> str:
    """The name with the variant of the method, unless it is the corrected one."""
    return name if variant == CORRECTED else f"{name} ({variant})"


@functools.cache
def _name_in(path: Path) -> str | None:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    match = NAME.match(first)
    return match and match[1]
