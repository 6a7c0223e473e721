"""What each command does and its own settings, from which help and completion follow too.

The docstrings are what `dpbench help COMMAND` prints. All else that a command takes are settings
of runs (conf/). This module is imported at every start, so it imports nothing slow.
"""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dpbench.system.arguments import File
from dpbench.system.validate import Count, Fraction, NonNegative, Positive, Whole

MAX_TRIALS = 100_000
"""More than anyone can afford; a search keeps all of its trials in memory."""

Trials = Annotated[int, Meta(ge=0, le=MAX_TRIALS)]
"""A number of trials, of which there may be none."""


class RunCommand(Struct, frozen=True):
    """Train once and print the path of the record. With -m a sweep: all combinations of a=1,2
    b=3,4, in jobs=N processes or on a cluster (launcher=slurm, ray). --cfg job prints the
    configuration, and --info the options chosen, without running
    anything.

    record: the digest or the file of a record, whose settings are run again
    """

    record: str = ""


class ReproduceCommand(Struct, frozen=True):
    """Execute the missing runs of a paper's table or figure, and print it.

    scale: a smaller size, if the table declares one of this name
    power: runs nothing: how many seeds would decide the table's claims with this probability, e.g.
        0.8
    layout: also writes the table as a paper prints it
    columns: the columns of layout=paper, A,B; by default all
    """

    scale: str = ""
    power: Fraction | None = None
    layout: Literal["paper"] | None = None
    columns: tuple[str, ...] = ()


class SearchCommand(Struct, frozen=True):
    """Search hyper-parameters by trials on a validation split; a range is a=1,2 or
    'optimizer.lr=tag(log,interval(1e-3,1))', and space=method has all of a method.

    N: trials; of a private search the candidates that they are drawn from
    by: how settings are proposed
    rule: what trials are sorted by
    draw: the seed of the proposals
    name: that of the search's files; by default it follows from all that determines the search
    space: space=method takes the ranges in the file of the method
    start: the search that chose the settings of the special case which space=method starts at, by
        default the one named as this search; start=none for no such start
    extend: so many trials more, by default N/4, beyond an end of a range at which the best one or
        the best finalist lies
    finalists: so many of the best trials are run again, with other seeds, and chosen from
    final_seeds: the other seeds of each finalist
    repeat: so many independent searches, NAME-1, NAME-2, ..., with other draws and seeds, each with
        the start of its number
    private: a search within one epsilon: a random number of trials, chosen by noisy accuracy
    epsilon: that of a whole private search, to which its trials are calibrated
    law: of the number of trials of a private search: negative_binomial, poisson or binomial
    trials: their mean number
    shape: that of a negative binomial law, or the most trials of a binomial one
    """

    N: Annotated[int, Meta(ge=1, le=MAX_TRIALS)] = 20
    by: Literal["random", "tpe"] = "random"
    rule: Literal[
        "best_validation", "best_worst_group", "best_balanced_accuracy", "lowest_validation_loss"
    ] = "best_validation"
    draw: Whole = 0
    name: str = ""
    space: str = ""
    start: str = ""
    extend: Trials | None = None
    finalists: Trials = 0
    final_seeds: Annotated[int, Meta(ge=1, le=MAX_TRIALS)] = 5
    repeat: Annotated[int, Meta(ge=1, le=MAX_TRIALS)] = 1
    private: bool = False
    epsilon: Positive | None = None
    law: str = "negative_binomial"
    trials: float = 10.0
    shape: float = 1.0


class ChallengeCommand(Struct, frozen=True):
    """Compare a method with committed baselines by one frozen protocol: its search, then the test;
    says its cost first.

    version: the protocol: by default 2, of tables; 3, of images; 4, of a rare class; 1, of before
    name: that of the entry, by default the method's
    recount: a file of records that somebody submitted, whose choices and numbers are counted again
    plan: only says what the entry costs
    """

    version: str = ""
    name: str = ""
    recount: str = ""
    plan: bool = False


class AuditCommand(Struct, frozen=True, kw_only=True):
    """Settings of every audit.

    claim: the epsilon to refute, by default that of the run; none by default for your own code
    confidence: that of the lower bound
    """

    claim: NonNegative | None = None
    confidence: Fraction = 0.95


class RunAuditCommand(AuditCommand, frozen=True, kw_only=True):
    """Attack a run's epsilon with canaries and report a lower bound; with step= or training=, that
    of private training code of your own (docs/audit_your_code.md).

    canaries: examples to guess the presence of; by default it depends on the game
    game: what is attacked: all canaries in one run, or one in each of many steps, runs, ...; bits
        is of contenders alone
    contender: another library, whose training is attacked
    """

    canaries: Annotated[int, Meta(ge=100, le=10_000_000)] | None = None
    game: Literal[
        "run",
        "step",
        "network",
        "memory",
        "cut",
        "normalization",
        "columns",
        "temperature",
        "conformal",
        "search",
        "bits",
    ] = "run"
    contender: str = ""


class CodeAuditCommand(AuditCommand, frozen=True, kw_only=True):
    """Of private training code of your own (docs/audit_your_code.md), one of step and training:

    step: MODULE:FACTORY of one step
    training: MODULE:FACTORY of a whole training
    examples: MODULE:FUNCTION, which takes the number of examples and returns inputs and targets;
        by default they are made up
    noise_multiplier: what the code claims, and what the tasks have: noise per bound
    bound: the largest norm of an example's gradient
    sample_rate: the probability that an example is in a batch
    steps: the number of steps
    delta: that of the epsilon
    canaries: those of the attack; 0 leaves it out, and the rest takes seconds
    seed: that of the attack
    out: the page
    """

    step: str = ""
    training: str = ""
    examples: str = ""
    noise_multiplier: Positive = 1.0
    bound: Positive = 1.0
    sample_rate: Annotated[float, Meta(gt=0, le=1)] = 0.125
    steps: Count = 40
    delta: Fraction = 1e-5
    canaries: Annotated[int, Meta(ge=0, le=100_000)] = 4000
    seed: Whole = 0
    out: File = Path("audit.md")


class DataCommand(Struct, frozen=True):
    """Download and check data sets; with the settings of a run on data of your own, print what
    would be trained on: rows, people, columns, and what is odd (docs/add_a_dataset.md).

    data_dir: the folder of the data sets, by default that of a run
    out: the name of the page of your own data and of its facts, without .md and .json; by default
        the page is only printed
    """

    data_dir: str = ""
    out: str = ""


class BenchCommand(Struct, frozen=True):
    """Measure time and memory of a step, ours and other libraries', or with suite=table of whole
    commands.

    suite: what is measured: models, what is trained of a pre-trained network, methods over the
        depth of a perceptron, or whole commands
    case: some of the suite's models or commands, A,B
    contender: some of the suite's implementations, A,B
    repeats: measurements of each; 0 only writes table and picture again
    device: cpu, cuda, or counted: what a step would do on a GPU, counted without one
    out: the folder of measurements, table and picture
    """

    suite: Literal["step", "parts", "depth", "table"] = "step"
    case: tuple[str, ...] = ()
    contender: tuple[str, ...] = ()
    repeats: Annotated[int, Meta(ge=0, le=10_000)] = 20
    device: str = "auto"
    out: Path = Path("results/step_cost")


class TableCommand(Struct, frozen=True):
    """Write the records with these settings (KEY=A,B: either), or of one sweep, as a table
    (Markdown, CSV, LaTeX): means over seeds, epsilons, and with baseline= differences paired by
    seed.

    sweep: the runs of this sweep alone
    rows: settings that differ by row, A,B
    columns: settings that differ by column, A,B
    metrics: metrics of the test set, A,B; by default what methods are ranked by, such as accuracy
    baseline: the method with which others are compared, by differences paired by seed
    best: what chooses among the settings of each row
    seconds: leaves out settings whose runs take longer
    out: the name of the files, without .md, .csv and .tex
    """

    sweep: str = ""
    rows: str = "method"
    columns: str = ""
    metrics: str = ""
    baseline: str = ""
    best: Literal["validation"] | None = None
    seconds: Positive | None = None
    out: File = Path("table")


class OfRecords(Struct, frozen=True):
    """Write a file on all records.

    results_dir: the folder of the records
    out: the file
    """

    results_dir: Path = Path("results")
    out: File = Path("report.html")


class ReportCommand(OfRecords, frozen=True):
    """Write one HTML page that compares all records; works offline.

    out: the page
    watch: serves the page at an address of this machine instead, and makes it anew as runs end
    """

    watch: bool = False


class FindingsCommand(OfRecords, frozen=True):
    """Write one page on what all tables and runs say: what to use at epsilon 1, 3 and 8, and a line
    for each method and each claim of a paper.

    out: the page
    """

    out: File = Path("results/findings.md")


class PublishCommand(OfRecords, frozen=True):
    """Write the records without their seeds and without anything computed from training data that
    epsilon does not cover; test metrics are kept.

    out: the file of the records
    record: the digest of the only one; by default all but the trials of private searches
    """

    out: File = Path("published.records.jsonl")
    record: str = ""


class ReleaseCommand(Struct, frozen=True):
    """Train a private model of your own table (dataset.file=, dataset.target=, dataset.bounds=),
    and write it as a folder that somebody else can use alone, with what its epsilon covers.

    out: the new folder
    test: also states the accuracy on test rows, which is exact, and no epsilon covers it
    """

    out: Path = Path("release")
    test: bool = False


class RecipeCommand(Struct, frozen=True):
    """Say which settings to start from for given data and epsilon (dataset=..., privacy.epsilon=),
    as a command that runs, with a reason for each; settings that are given stay.

    minutes: that training may take, of this machine
    """

    minutes: Positive = 5.0


class ChecklistCommand(Struct, frozen=True):
    """Answer what a reviewer asks of a comparison (data sets, seeds, significance, search,
    ablation, ...) from the records.

    method: the only method to answer for
    baseline: the method that it is compared with, by default the table's, or dpsgd
    metric: what they are compared by
    results_dir: the folder of the table's records
    out: the name of the files, without .md, .csv and .tex
    """

    method: str = ""
    baseline: str = ""
    metric: str = "test/accuracy"
    results_dir: Path = Path("results")
    out: File = Path("checklist")


class VerifyCommand(Struct, frozen=True):
    """Check that records agree with their settings and ledgers, and tables with their records.

    results_dir: the folder of records and tables
    rerun: so many runs, the quickest, are trained again
    save: also writes a page for the report
    """

    results_dir: Path = Path("results")
    rerun: Whole = 0
    save: bool = False


class MergeCommand(Struct, frozen=True):
    """Copy the runs, models and lists of sweeps of several results folders into the first one, or
    into out=, if all records are valid and no two of one run differ.

    out: the folder that they are copied to
    """

    out: str = ""


class EpsilonCommand(Struct, frozen=True):
    """Print the epsilon of a run without training it (JSON in a pipe), or with KEY=A,B a table; of
    your own data, only the public sizes are used."""


class TrackCommand(Struct, frozen=True):
    """Log finished records with these settings to wandb or another of `list tracker`; those that
    W&B already has are logged only with again=true."""


class ListCommand(Struct, frozen=True):
    """Print the configuration groups and their options, or for each GROUP that is named, what each
    of its options is, or those that are named too."""
