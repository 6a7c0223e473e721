"""The header of a table's tidy CSV, apart from its writer, which needs the accountants."""

HEAD = (
    "method",
    "column",
    "ours",
    "spread",
    "n",
    "published",
    "published_spread",
    "difference",
    "verdict",
)
