"""The first lines of YAML files: `# Name: DP-SGD` of a method, `# Kind: images` of a data set."""

import functools
import re
from pathlib import Path

from dpbench.privacy.guarantee import CORRECTED
from dpbench.runs.config.search_path import file_of

FIRST = re.compile(r"#\s*(Name|Kind):\s*(\S.*?)\s*$")
PLAIN = re.compile(r"\w+")


def method_name(method: str) -> str:
    """The display name of a method; the name of the option if its file gives none."""
    return _said("method", method, "Name") or method


OTHER_DATA = "other data"


def data_kind(dataset: str) -> str:
    """The kind of a data set, as `images`; "other data" if its file gives none."""
    return _said("dataset", dataset, "Kind") or OTHER_DATA


def with_variant(name: str, variant: str) -> str:
    """The name with the variant of the method, unless it is the corrected one."""
    return name if variant == CORRECTED else f"{name} ({variant})"


def _said(group: str, option: str, word: str) -> str | None:
    # Options are file names; a record may contain anything.
    path = file_of(group, option) if PLAIN.fullmatch(option) else None
    return _first_line(path).get(word) if path else None


@functools.cache
def _first_line(path: Path) -> dict[str, str]:
    match = FIRST.match(path.read_text(encoding="utf-8").partition("\n")[0])
    return {match[1]: match[2]} if match else {}
