"""The page of an audit of one's own code: the claim, the checks, the attack and the verdict."""

from dataclasses import dataclass

from dpbench.audit.audit import NOT_REFUTED, AuditResult, audit_grid
from dpbench.audit.code.task import FLAGGED, ClaimedDpsgd, Finding
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.privacy.accountants import pld
from dpbench.runs.records.epsilon import REFUTED, delta_text, rounded_up

RULES = (
    "Refuted: what is claimed is false. Flagged: something is wrong or wasteful, but the claim may "
    "hold. Not checked: the check says nothing of such code. No audit can prove a claim. The "
    "attack's bounds have 95% confidence by default; it refutes a claim only if its scores have a "
    "probability of at most 1e-4 under it."
)


@dataclass(frozen=True)
class CodeReport:
    """An audit of one's own code. findings: by the name of the check. attack: None if the code
    failed under it. command: the one that makes the page."""

    name: str
    kind: str
    claim: ClaimedDpsgd
    findings: dict[str, Finding]
    attack: AuditResult | None
    command: str

    @property
    def verdict(self) -> str:
        """REFUTED if a check or the attack refutes the claim, else NOT_REFUTED."""
        attacked = self.attack is not None and self.attack.verdict == REFUTED
        return REFUTED if attacked or self.named(REFUTED) else NOT_REFUTED

    def named(self, verdict: str) -> list[str]:
        """The checks with a verdict."""
        return [name for name, finding in self.findings.items() if finding.verdict == verdict]

    @property
    def page(self) -> str:
        """The page in Markdown."""
        found = self.findings.values()
        why = [f.sentence for verdict in (REFUTED, FLAGGED) for f in found if f.verdict == verdict]
        checks = tuple((name, *finding) for name, finding in self.findings.items())
        blocks: list[PageBlock] = [
            f"**{self.verdict.capitalize()}.** {' '.join(why)}".strip(),
            self._claims,
            Grid("Checks", ("check", "result", "why"), checks),
        ]
        if self.attack:
            blocks += [audit_grid("Attack", [self.attack]), self.attack.sentence]
        return Page(f"Audit of {self.name}", [*blocks, RULES], self.command).markdown

    def _repr_markdown_(self) -> str:
        return self.page

    @property
    def plain(self) -> dict:
        """What the last line of the command says."""
        attack = self.attack
        return {
            self.kind: self.name,
            "verdict": self.verdict,
            REFUTED: self.named(REFUTED),
            FLAGGED: self.named(FLAGGED),
            "attack": attack.plain if attack else None,
        }

    @property
    def _claims(self) -> Grid:
        claim = self.claim
        epsilon = pld(claim.ledger(claim.sample_rate, claim.steps), claim.delta)
        delta = f"delta {delta_text(claim.delta)}"
        rows = (
            ("noise multiplier", f"{claim.noise_multiplier:g}"),
            ("bound of a gradient's norm", f"{claim.bound:g}"),
            ("sampling rate (Poisson)", f"{claim.sample_rate:g}"),
            ("steps", str(claim.steps)),
            ("epsilon of these steps, by PLD", f"{rounded_up(epsilon, 3)} at {delta}"),
        )
        return Grid("Claim", ("DP-SGD with", "value"), rows)
