"""From runs to tables: ours beside the published numbers, with a verdict on each."""

from dpbench.tables.conditions import Condition, conditions_of, narrowed, row_name, setting
from dpbench.tables.latex import to_latex
from dpbench.tables.markdown import to_markdown
from dpbench.tables.published import Published, PublishedTable, read_epsilon, read_published
from dpbench.tables.spec import Column, TableSpec, table_spec
from dpbench.tables.table import Table, build_table
from dpbench.tables.tidy import to_csv

__all__ = [
    "Column",
    "Condition",
    "Published",
    "PublishedTable",
    "Table",
    "TableSpec",
    "build_table",
    "conditions_of",
    "narrowed",
    "read_epsilon",
    "read_published",
    "row_name",
    "setting",
    "table_spec",
    "to_csv",
    "to_latex",
    "to_markdown",
]
