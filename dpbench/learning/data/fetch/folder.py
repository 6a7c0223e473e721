"""Where downloaded files go."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def default_folder() -> Path:
    """The default data folder: $DPBENCH_DATA, else the user's cache folder."""
    configured = os.environ.get("DPBENCH_DATA")
    return Path(configured).expanduser() if configured else user_cache_path("dpbench")
