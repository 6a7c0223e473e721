"""Folders on this machine: of the configuration, the studies and the searches, which a wheel
contains in the package and a checkout beside it, and others."""

import functools
import os
import re
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from dpbench.system.errors import UserError

PACKAGE = Path(__file__).resolve().parents[1]
BENCHMARKS = "benchmarks"


def check_working_folder() -> None:
    """UserError if the working folder was deleted, without which libraries end the process."""
    try:
        Path.cwd()
    except OSError as error:
        raise UserError(
            f"the working folder cannot be used ({error.strerror}): change to another one."
        ) from error


def data_folder() -> Path:
    """The default data folder: $DPBENCH_DATA, else the user's cache folder."""
    configured = os.environ.get("DPBENCH_DATA")
    return Path(configured).expanduser() if configured else user_cache_path("dpbench")


def installed_folder(package: str) -> Path | None:
    """The folder of an installed package, none of whose code is run; None if there is none."""
    spec = find_spec(package) if re.fullmatch(r"[A-Za-z_]\w*", package) else None
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else None


def conf_folder() -> Path:
    """The folder of the Hydra configuration."""
    return _beside(PACKAGE, "conf")


def benchmarks_folder() -> Path:
    """The folder with one folder per study: its page, tables, published numbers and code."""
    return _beside(PACKAGE, BENCHMARKS)


def option_folders() -> tuple[Path, ...]:
    """The folders of our own options: conf/, and the studies, which have options of their own."""
    return (conf_folder(), *_studies_with_options(benchmarks_folder()))


@functools.cache
def _studies_with_options(benchmarks: Path) -> tuple[Path, ...]:
    studies = (path for path in sorted(benchmarks.iterdir()) if path.is_dir())
    return tuple(path for path in studies if any(path.glob("*/*.yaml")))


def searches_folder() -> Path:
    """The folder with the files of the searches whose choices tables take."""
    return _beside(PACKAGE, "results") / "search"


@functools.cache  # a composition asks for them fifty times
def _beside(package: Path, name: str) -> Path:
    inside, beside = package / name, package.parent / name
    if inside.is_dir():
        return inside
    # Beside an installed package there may be unrelated folders, so only a checkout counts.
    if beside.is_dir() and (package.parent / "pyproject.toml").is_file():
        return beside
    raise UserError(
        f"The folder {name}/ is neither in {package} nor in a checkout around it; "
        "install dpbench-suite again, from a wheel or with pip install -e in a full checkout."
    )
