"""Records: one JSON file per run, named by the digest of its settings and always complete."""

import hashlib
import json
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import cast

from dpbench.learning.metrics.derived import last_epochs_metrics
from dpbench.privacy.guarantee import DEFAULT_PAPER_ACCOUNTANT
from dpbench.privacy.statement import Statement
from dpbench.runs.config.settings import NAMED_GROUPS
from dpbench.runs.records.digest import digest_of_scientific, group_of, scientific
from dpbench.runs.records.folder import RUNS
from dpbench.system.files import write_atomically

SCHEMA = 1

OLDER_TERMS = {
    "adjacency": "add or remove one example",
    "arithmetic": "real",
    "claimed_by": DEFAULT_PAPER_ACCOUNTANT,
    "notes": [],
    "unit": "example",
}
"""The terms of privacy statements that older records leave out, as they held for those."""

CANARIES = "canaries"
"""The data set that records of audits name: made for the attack, and none to compare methods on."""

COVERED = {
    "privacy": True,
    **dict.fromkeys(("metrics", "history", "diagnostics", "calibration"), False),
    **dict.fromkeys(
        (f"provenance.{name}" for name in ("seconds", "peak_memory_mib", "physical_batch_size")),
        False,
    ),
}
"""Whether the epsilon of a record covers its parts. Metrics are exact numbers about examples of the
test or training set; seconds, memory and what fits into it depend on the sizes of batches."""


@dataclass(frozen=True)
class Record:
    """The result of a run: its settings, metrics, privacy statement and provenance; docs/records.md
    has every field.

    config: the scientific settings only, and no paths on this machine. metrics: flat, fractions and
    nats. history: one entry per epoch; diagnostics: one per measured step; both read private data
    outside the account. calibration: empty for older and for diverged runs. status: "complete" or
    "diverged". covered: by part, whether the epsilon covers it. signed: whether the record has a
    checksum; the first ones have none. source: the file that it was read from, with the line if
    that has several; "" for a record that is made.
    """

    config: dict
    metrics: dict[str, float]
    privacy: Statement
    provenance: dict
    status: str
    history: dict[str, list] = field(default_factory=dict)
    diagnostics: dict[str, list] = field(default_factory=dict)
    calibration: dict = field(default_factory=dict)
    covered: dict[str, bool] = field(default_factory=dict)
    schema: int = SCHEMA
    signed: bool = True
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", scientific(self.config))

    def __repr__(self) -> str:
        choices = self.config.get("choices", {})
        names = ", ".join(str(choices.get(group, "?")) for group in NAMED_GROUPS)
        return f"<Record of {names}, seed {self.config.get('seed')}: {self.status}>"

    @cached_property
    def digest(self) -> str:
        """The name of the run; computed once, so the configuration must not change afterwards."""
        return digest_of_scientific(self.config)

    @cached_property
    def group(self) -> str:
        """`group_of` the configuration, computed once."""
        return group_of(self.config)

    @cached_property
    def seed(self) -> int | str:
        """The seed, by which runs are told apart and paired; of a record that was published without
        it, a word of its own."""
        seed = self.config.get("seed")
        return f"unknown {sha256(self.json())[:8]}" if seed is None else seed

    @property
    def statement(self) -> Statement:
        """The privacy statement, with all terms, even if the record is older than some of them."""
        return cast(Statement, OLDER_TERMS | self.privacy)

    @property
    def is_audit(self) -> bool:
        """Whether this is the record of an audit, whose settings do not fully determine the run."""
        return "audit" in self.privacy

    @property
    def is_tested(self) -> bool:
        """Whether the run was evaluated on the test set; trials are on a validation split."""
        return self.config.get("validation") is None

    @property
    def measured(self) -> dict[str, float]:
        """The metrics, those computed from the diagnostics of the last epochs, what attacks achieve
        at most, and the seconds that the run took."""
        last_epochs = last_epochs_metrics(self.config, self.diagnostics)
        seconds = self.provenance.get("seconds")
        took = {} if seconds is None else {"seconds": seconds}
        return self.metrics | last_epochs | self.attack_bounds | took

    @property
    def attack_bounds(self) -> dict[str, float]:
        """`AttackBounds` by name; empty without a guarantee, for older records, and for trials of
        private searches, whose choice tells more than each."""
        is_trial = self.config.get("trial") is not None
        return {} if is_trial else cast(dict[str, float], self.privacy.get("attacks") or {})

    def json(self) -> str:
        """The record as one JSON object; NaN and Infinity as Python's json writes them. Fields that
        older records lack are omitted if empty, so that those are written unchanged."""
        empty = {name for name in ("calibration", "covered") if not getattr(self, name)}
        left_out = {"signed", "source", *empty}
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        if self.signed:
            plain["checksum"] = checksum(plain)
        return json.dumps(plain, sort_keys=True)

    def save(self, folder: Path) -> Path:
        """Write the record under its digest, atomically."""
        path = folder / RUNS / f"{self.digest}.json"
        write_atomically(path, self.json().encode())
        return path


def checksum(plain: dict) -> str:
    """SHA-256 of a record's fields without the checksum itself, as 64 hex digits."""
    return sha256(json.dumps(plain, sort_keys=True))


def sha256(text: str) -> str:
    """SHA-256 of a text, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()
