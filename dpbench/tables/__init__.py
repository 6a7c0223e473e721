"""From runs to tables: our numbers beside the published ones, with a verdict on each."""

from dpbench.tables.conditions import Condition, conditions_of, narrowed, row_name, setting
from dpbench.tables.latex import to_latex
from dpbench.tables.markdown import grid_lines, to_markdown
from dpbench.tables.privacy import NO_PLANS, Statement, privacy_grid
from dpbench.tables.published import Published, PublishedTable, read_epsilon, read_published
from dpbench.tables.runs import CORRECTED, Row
from dpbench.tables.spec import PAPER_SCALE, Column, TableSpec, table_spec
from dpbench.tables.table import Table, build_table
from dpbench.tables.tidy import claims_csv, to_csv

__all__ = [
    "CORRECTED",
    "NO_PLANS",
    "PAPER_SCALE",
    "Column",
    "Condition",
    "Published",
    "PublishedTable",
    "Row",
    "Statement",
    "Table",
    "TableSpec",
    "build_table",
    "claims_csv",
    "conditions_of",
    "grid_lines",
    "narrowed",
    "privacy_grid",
    "read_epsilon",
    "read_published",
    "row_name",
    "setting",
    "table_spec",
    "to_csv",
    "to_latex",
    "to_markdown",
]
