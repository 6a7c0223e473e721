"""The numbers of a page that are results, block by block, and the sources of each block.

A block is a paragraph, an item of a list or a row of a table. Its sources are those of a comment
`<!-- from: NAME ... -->` in it. Without one they are those of the last comment by itself under its
heading, or else the files of results/ that it names, or else those of the block before it.

Numbers in code, quotation marks, links and the first cell of a row are left out, and those that are
not results by the words beside them: a reference (Table 2, class 8), a setting (lr 0.2, 60 epochs),
the name of a model or a data set, a year.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

ONE = r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
SOME = rf"{ONE}(?:(?:, | and | or | to |, and | x ){ONE})*"
NUMBER = re.compile(rf"(?<![\w./^-])(?<!\w-)({ONE})(?![\w/]|\.\d|-\w|[,.]?\d)")
COMMENT = re.compile(r"<!-- from:\s+(.*?) -->", re.DOTALL)
FENCE = re.compile(r"^(?:```.*?^```|    (?:dpbench|python) [^\n]*)$", re.DOTALL | re.MULTILINE)

REFERENCE = (
    r"Tables?|Fig(?:ure|ures|s|\.)|figures|[Ss]ections?|Equations?|Algorithms?|Appendix|Lemmas?|Theorem|"
    r"Propositions?|Facts?|Lines?|class|classes|seeds?|steps?|version|n ="
)
SETTING = (
    r"lr|lr R|learning rate of|learning rate|lambda|R|bound of|width|epsilon|delta|sigma|scale|"
    r"views|momentum|batch(?:es)? of|batch size of|[Aa]t|multiplier|at norm|opacus|jax|jax_privacy"
)
ADJECTIVE = r"(?: more| training| random| whole| million| wide| single| test| noisy)?"
UNIT = (
    r"epochs?|steps?|seeds?|runs?|examples|images|users|views|parameters|gradients|trials|classes|bins|measurements|"
    r"cores?|minutes|hours|targets|canaries|coordinates|weights|settings|layers|pairs|wines"
)
NOT_A_RESULT = [
    rf"\b(?:{REFERENCE}) \(?{SOME}",
    rf"\b(?:{SETTING})(?: =| is| of)? (?>{SOME})(?!%| ?±|,? points)",
    rf"\b{SOME}{ADJECTIVE} (?:{UNIT})\b",
    r"[a-z] (?:19|20)\d\d\b|\b(?:19|20)\d\d[:;,.)]|(?:ICLR|ICML) \d{4}",
    rf"\b[A-Za-z_]+ [=>] {ONE}|{ONE}(?: x {ONE})+|\b1/\({ONE} n\)|\b{ONE}/{ONE}",
    rf"\b95% (?:of|confidence|interval)|p < {ONE}|n = {ONE}",
]
SCALED = re.compile(r"(?:(?:,| to| and|, and) [-+]?[\d.]+)* ?(?:%| (?:\w+ )?points| times)")
LEFT_OUT = re.compile("|".join([r"`[^`]*`", r'"[^"]*"', r"\]\([^)]*\)", *NOT_A_RESULT]))


@dataclass(frozen=True)
class Block:
    """A paragraph, item or row; sources: the names of the files that its numbers are from."""

    text: str
    sources: tuple[str, ...]

    @property
    def is_row(self) -> bool:
        return self.text.startswith("|")


@dataclass(frozen=True)
class Shown:
    """A number as a page shows it, whether points, per cent or times, and whether after a ±."""

    text: str
    scaled: bool = False
    spread: bool = False

    @property
    def value(self) -> float:
        return float(self.text.replace(",", ""))

    @property
    def unit(self) -> float:
        """The size of the last digit."""
        mantissa, _, power = self.text.partition("e")
        return 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))


def results(block: Block) -> list[Shown]:
    """The numbers of a block that are results."""
    text = re.sub(r"\s+", " ", block.text)
    if block.is_row:  # its first cell names it
        text = "|" + text.strip("|").partition("|")[2]
    words = LEFT_OUT.sub(lambda match: " " * len(match[0]), text)
    return [
        Shown(
            match[1],
            scaled=SCALED.match(text[match.end() :]) is not None,
            spread=text[: match.start()].rstrip().endswith("±"),
        )
        for match in NUMBER.finditer(words)
    ]


def blocks(page: str, known: Callable[[str], list[str]]) -> list[Block]:
    """The blocks of a page; known(text): the names of sources in a text."""
    found: list[Block] = []
    comment, before = (), ()
    for text in pieces(FENCE.sub("", page)):
        said = COMMENT.search(text)
        if text.startswith("#"):
            comment, before = (), ()
        elif said and said[0] == text:
            comment = before = sources_in(said[1])
        else:
            own = sources_in(said[1]) if said else comment or known(text)
            before = tuple(own) or before
            found.append(Block(COMMENT.sub("", text), before))
    return found


def sources_in(comment: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[\w./-]+(?:\[[^\]]*\])?", comment))


def pieces(page: str) -> list[str]:
    """Headings, comments, paragraphs, items and rows, in order."""
    page = re.sub(r"^\|.*\n\|[-|: ]+\|$", "", page, flags=re.MULTILINE)  # the heads of tables
    starts = r"\n\s*\n|\n(?=\||- |#|<!--)|(?<=-->)\n"
    return [piece.strip() for piece in re.split(starts, page) if piece.strip()]
