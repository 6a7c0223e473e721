"""A table as the files that are written of it."""

from dpbench.tables.latex import to_latex
from dpbench.tables.markdown import to_markdown
from dpbench.tables.table import Table


def table_files(table: Table, csv: str) -> dict[str, bytes]:
    """The files by suffix. csv: the text of the CSV file, whose columns differ between tables."""
    texts = {"md": to_markdown(table), "csv": csv, "tex": to_latex(table)}
    return {suffix: text.encode() for suffix, text in texts.items()}
