"""The protocol of a challenge: a table's baselines, and how an entry is searched and tested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.comparison.search.request import SearchRequest, repeated
from dpbench.comparison.search.start import NONE
from dpbench.comparison.tables.conditions import Condition
from dpbench.runs.config.search_path import options
from dpbench.runs.config.settings import key_of
from dpbench.runs.config.space import override_texts
from dpbench.runs.config.special_case import special_case
from dpbench.runs.config.table_file import ChallengeRules
from dpbench.runs.records.collect import RECORDS, readable_records_in
from dpbench.runs.records.folder import TABLES
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError
from dpbench.system.paths import searches_folder
from dpbench.system.validate import one_of

PREFIX = "challenge_v"
"""What the names of the tables of baselines begin with, before the version."""

USUAL = "2"
"""That of an entry that names none: at the first nobody can win, and the others are of images."""


@dataclass(frozen=True)
class Protocol:
    """A version of the challenge."""

    version: str
    target: Target

    @property
    def rules(self) -> ChallengeRules:
        """How an entry is tuned."""
        if self.target.table.challenge is None:
            raise UserError(f"{self.target.name} is not a challenge: it has no table.challenge.")
        return self.target.table.challenge

    @property
    def seeds(self) -> list[int]:
        """Those of the runs that are tested."""
        return self.target.table.seeds

    def searches(
        self, condition: Condition, name: str, entry: Sequence[str]
    ) -> tuple[SearchRequest, ...]:
        """The searches of an entry under a condition, as many as a baseline has; UserError for an
        invalid entry."""
        rules = self.rules
        words = [self.target.name, *(str(value) for _, value in condition.values), name]
        search = {
            **{"name": "-".join(words), "space": "method", "by": "random", "draw": rules.draw},
            **{"start": self._start(condition, entry), "extend": rules.extend},
            **{"rule": rules.rule, "N": rules.trials, "repeat": self.target.table.searches},
            **{"finalists": rules.finalists, "final_seeds": rules.final_seeds},
        }
        run = {"seed": rules.trial_seed, "validation": rules.validation}
        settings = [f"{key}={value}" for key, value in {**search, **run}.items()]
        table = f"+table={self.target.name}"
        return tuple(repeated([*settings, table, *condition.overrides(), *entry]))

    def _start(self, condition: Condition, entry: Sequence[str]) -> str:
        """The searches of the baseline that the entry's method contains, whose choices it tries
        first, without their numbers; NONE if there are none."""
        (*_, method) = (o.partition("=")[2] for o in entry if key_of(o) == "method")
        case = special_case(method) if self.rules.starts else None
        if case is None or not case.is_open(map(key_of, entry)):
            return NONE
        names = self.target.searches.get((condition.label, case.special_case))
        return names[0].removesuffix("-1") if names else NONE

    def tested(
        self, request: SearchRequest, chosen: Mapping[str, str], number: int = 1
    ) -> list[list[str]]:
        """The overrides of the runs that are tested, of what the search of this number chose by
        key, seed by seed."""
        fixed = [o for o in request.fixed if key_of(o) != "validation"]
        seeds = [seed for seed in self.seeds if self.target.table.search_number(seed) == number]
        return [[*fixed, *override_texts(chosen), f"seed={seed}"] for seed in seeds]

    def baselines(self) -> dict[str, dict[str, list[Record]]]:
        """The committed records by condition and baseline; UserError if some are missing."""
        path = searches_folder().parent / TABLES / f"{self.target.name}.{RECORDS}"
        found: dict[str, dict[str, list[Record]]] = {
            label: {method: [] for method in self.target.table.methods}
            for label in self.target.labels
        }
        for record in readable_records_in(path):
            under = found[self.target.condition_of(record.config)]
            under[self.target.method_of(record.config)].append(record)
        if any(len(r) < len(self.seeds) for rows in found.values() for r in rows.values()):
            raise UserError(
                f"{path} lacks runs of the baselines: install dpbench-suite again, or use a full "
                "checkout."
            )
        return found


def protocol_of(version: str) -> Protocol:
    """The protocol of a version, such as 1; UserError for an unknown one."""
    one_of("version", version, versions())
    return Protocol(version, target_of(f"{PREFIX}{version}", []))


def versions() -> list[str]:
    """All versions, the latest last."""
    tables = [name for name in options("table") if name.startswith(PREFIX)]
    return sorted((name.removeprefix(PREFIX) for name in tables), key=lambda v: (len(v), v))
