"""Every command and every piece of Python in docs/ is carried out, or planned where it takes hours.

The first line of a fence says which:

    sh run      dpbench commands, run in this process, one page in one folder (slow: by slow tests)
    sh plan     dpbench commands that need downloads or hours: composed and planned
    sh shell    commands of the shell, for set-up: tests/test_scripts.py runs the scripts
    python run  run where the commands of the page were
    text        what the fence before it prints: in that order, `...` for anything, decimals to 2%
    diff        applied by test_how_tos.py
    sh, or any other language, in the pages of ELSEWHERE: their own tests run them
"""

import contextlib
import io
import math
import re
import shlex
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters

import pytest
from dpbench.benchmarks.challenge.entry import check_entry
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from dpbench.audit.request import prepare_audit
from dpbench.cli.main import main
from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.search.request import parse
from dpbench.runs.config import commands
from dpbench.runs.config.overrides import expand
from dpbench.runs.config.search_path import groups, options
from dpbench.runs.config.settings import split_settings
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.system.arguments import read

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ELSEWHERE = {"audit_your_code.md", "clusters.md"}

FENCE = re.compile(r"^```(\S*) *(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language, the words after it, its text, and the one just after it."""

    language: str
    words: tuple[str, ...]
    text: str
    shown: str | None

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command, with continued lines joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def fences(page: Path) -> list[Fence]:
    text = page.read_text()
    return [
        Fence(m[1], tuple(m[2].split()), m[3], shown_after(text[m.end() :]))
        for m in FENCE.finditer(text)
    ]


def shown_after(text: str) -> str | None:
    """The text fence that comes next, if nothing stands between."""
    found = FENCE.match(text.lstrip("\n"))
    return found[3] if found and found[1] == "text" else None


def named(page: Path) -> str:
    return str(page.relative_to(DOCS))


def pages(wanted) -> list:
    return [pytest.param(p, id=named(p)) for p in PAGES if any(map(wanted, fences(p)))]


def runs(fence: Fence) -> bool:
    return "run" in fence.words


def is_slow(fence: Fence) -> bool:
    return "slow" in fence.words


def agree(shown: str, printed: str) -> bool:
    """Whether the shown lines are among the printed ones, in order."""
    rest = iter(printed.splitlines())
    wanted = [line for line in shown.splitlines() if line.strip() not in ("", "...")]
    return all(any(line_agrees(line, other) for other in rest) for line in wanted)


def line_agrees(shown: str, printed: str) -> bool:
    numbers, pattern, end = [], "", 0
    for match in NUMBER.finditer(shown):
        pattern += re.escape(shown[end : match.start()]) + f"({NUMBER.pattern})"
        numbers, end = [*numbers, match[0]], match.end()
    pattern = (pattern + re.escape(shown[end:])).replace(re.escape("..."), ".*")
    found = re.fullmatch(pattern, printed.rstrip())
    return found is not None and all(map(close, numbers, found.groups()))


def close(shown: str, printed: str) -> bool:
    """Whole numbers are equal; others may be 2% off, or one unit of the last digit shown."""
    if re.fullmatch(r"-?\d+", shown):
        return shown == printed
    unit = 10.0 ** -len(shown.partition("e")[0].partition(".")[2])
    return math.isclose(float(shown), float(printed), rel_tol=0.02, abs_tol=1.01 * unit)


def carry_out(fence: Fence, names: dict, monkeypatch) -> str:
    """What a fence prints; Python has the names of the page's fences before it."""
    with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
        warnings.simplefilter("default")
        if fence.language == "python":
            exec(compile(fence.text, "<page>", "exec"), names)
        for program, *arguments in fence.commands if fence.language == "sh" else []:
            assert program == "dpbench"
            monkeypatch.setattr(sys, "argv", ["dpbench", *arguments])
            main()
    return out.getvalue()


def small_encoder(folder: Path) -> None:
    """A package in place of that of MiniLM: a tiny encoder of letters with its tokenizer."""
    package = folder / "all_minilm_l6_v2"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *ascii_letters, *(f"##{c}" for c in ascii_letters)]
    made = Tokenizer(models.WordPiece({w: n for n, w in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"vocab_size": len(words), "intermediate_size": 8, "max_position_embeddings": 128}
    BertModel(BertConfig(**sizes)).save_pretrained(package)
    made.save(str(package / "tokenizer.json"))
    (package / "__init__.py").write_text("raise AssertionError('code of the package was run')")


def follow(page: Path, slow: bool, monkeypatch, folder: Path) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DPBENCH_DATA", str(folder / "data"))
    if "all_minilm_l6_v2" in page.read_text():
        small_encoder(folder / "site")
        monkeypatch.syspath_prepend(str(folder / "site"))
    names: dict = {"__name__": "page"}
    for fence in fences(page):
        if not runs(fence) or (is_slow(fence) and not slow):
            continue
        printed = carry_out(fence, names, monkeypatch)
        if fence.shown is not None:
            assert agree(fence.shown, printed), f"{fence.text}printed:\n{printed}"


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("page", pages(lambda fence: runs(fence) and not is_slow(fence)))
def test_a_page_can_be_followed(page, monkeypatch, tmp_path):
    follow(page, False, monkeypatch, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("page", pages(is_slow))
def test_a_page_can_be_followed_to_the_last_command(page, monkeypatch, tmp_path):
    follow(page, True, monkeypatch, tmp_path)


PLANNED = [
    pytest.param(command, id=f"{named(page)}: {shlex.join(command)}")
    for page in PAGES
    for fence in fences(page)
    if fence.language == "sh" and "plan" in fence.words
    for command in fence.commands
]


@pytest.mark.sampled(16)
@pytest.mark.filterwarnings("ignore:privacy.delta=8e-07 is above")  # ImageNet32 in bam_table1
@pytest.mark.parametrize("command", PLANNED)
def test_a_long_command_is_one_that_the_suite_takes(command):
    program, verb, *arguments = command
    assert program == "dpbench"
    if verb in ("run", "epsilon"):
        for overrides in expand([a for a in arguments if a != "-m"]):
            prepare(run_config(overrides))
    elif verb == "audit":
        assert prepare_audit(split_settings("audit", commands.RunAuditCommand, arguments)[1])[1] > 0
    elif verb == "search":
        assert parse(arguments).space.ranges
    elif verb == "challenge":
        check_entry(split_settings(verb, commands.ChallengeCommand, arguments)[1])
    elif verb == "reproduce":
        prepare(run_config(next(target_of(arguments[0], arguments[1:]).cells())))
    elif verb == "verify":
        read(verb, commands.VerifyCommand, [a for a in arguments if "=" in a])
    else:
        known = {"data": options("dataset"), "list": groups()}[verb]
        assert set(arguments) <= set(known)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_fence_says_how_it_is_tested(page):
    known = {("sh", "run"), ("sh", "plan"), ("sh", "shell"), ("python", "run")}
    for fence in fences(page):
        if fence.language in ("text", "diff") or page.name in ELSEWHERE:
            continue
        assert (fence.language, *fence.words[:1]) in known, fence.text
        assert set(fence.words[1:]) <= {"slow"}
        for command in fence.commands if fence.words[0] == "shell" else []:
            assert command[0] != "dpbench"
            assert not command[0].startswith("scripts/") or (ROOT / command[0]).exists()


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_every_link_and_every_test_named_leads_somewhere(page):
    text = FENCE.sub("", page.read_text())
    for path in re.findall(r"\btests/[\w/]+\.py\b", text):
        assert (ROOT / path).exists(), path
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    for link in links:
        path, _, heading = link.partition("#")
        goal = page.parent / path if path else page
        assert goal.exists(), link
        if heading:
            assert heading in map(anchor, re.findall(r"^#+ (.+)$", goal.read_text(), re.MULTILINE))


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "README.md"], ids=named)
def test_the_index_leads_to_every_page(page):
    """A folder's index is its README, or the page beside it that has its name."""
    beside = page.parent.with_suffix(".md")
    index = beside if beside.exists() else page.parent / "README.md"
    assert f"]({page.relative_to(index.parent)})" in index.read_text()


def test_shown_output_is_compared_with_printed_output():
    printed = "trial 1\naccuracy 0.913 in 2.31 s\nresults/runs/12ab34.json\n"
    assert agree("accuracy 0.91 in ... s", printed)
    assert agree("trial 1\n...\nresults/runs/12ab34.json", printed)
    for wrong in (
        "accuracy 0.85 in ... s",
        "trial 2",
        "results/runs/12ab35.json",
        "accuracy 0.913",
    ):
        assert not agree(wrong, printed)
    assert not agree("results/runs/12ab34.json\ntrial 1", printed)
