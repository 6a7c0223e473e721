"""Compiles LaTeX where a compiler is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs,longtable,multirow}
\begin{document}
%s
\end{document}
"""


def assert_compiles(folder: Path, *texts: str) -> None:
    """Compile texts, each on pages of its own; skips, with the reason, without a compiler."""
    tectonic, pdflatex = map(shutil.which, ("tectonic", "pdflatex"))
    if not (tectonic or pdflatex):
        pytest.skip("neither tectonic nor pdflatex is on the PATH: install one")
    (folder / "all.tex").write_text(DOCUMENT % "\n\\clearpage\n".join(texts), encoding="utf-8")
    options = ["-interaction=nonstopmode", "-halt-on-error"] if pdflatex else []
    command = [pdflatex or tectonic, *options, "all.tex"]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if line.startswith(("!", "l."))]
    assert done.returncode == 0, "\n".join(said) or done.stderr
