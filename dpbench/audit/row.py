"""An audit as a row of a table."""

from dpbench.audit.audit import Audit

HEAD = (
    "method",
    "attacked",
    "canaries",
    "steps",
    "claimed",
    "by",
    "audited (own family)",
    "audited (GDP)",
    "audited (one run)",
    "audited / claimed",
    "verdict",
)


def row_of(result: Audit) -> tuple[str, ...]:
    """The cells of one audit."""
    bounds = result.bounds
    return (
        result.game.attacked,
        result.game.name,
        str(len(result.scores.values)),
        str(result.game.ledger.steps),
        f"{result.nominal.epsilon:.3f}",
        result.nominal.source,
        *(f"{epsilon:.3f}" for epsilon in (bounds.family, bounds.gdp, bounds.one_run)),
        f"{result.ratio:.2f}",
        result.verdict,
    )
