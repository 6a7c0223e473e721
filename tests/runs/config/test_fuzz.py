"""Whatever stands at a key of a configuration: it is planned, or refused in one sentence, and soon.

Thousands of cases from a fixed seed. Quickly, without accountants; at length, with them.
"""

import copy
import math
import random

import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.config.overrides import grammar
from dpbench.runs.config.search_path import groups, options
from dpbench.runs.execution.prepare import build, prepare
from dpbench.runs.execution.run_config import RunConfig, check_execution, run_config
from dpbench.runs.training.plan import plan
from tests.fuzzing import fault

LINEAR = {"_target_": "dpbench.mechanism.schedules.Linear", "start": 1.0, "end": 0.5}
VALUES = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 64, 1000, 10**9, 2**62, 2**63, 10**23, 10**400),
    *(0.5, 0.999999, 1.5, -0.5, 1e-10, 1e-38, 1e-300, 5e-324, 1e10, 1e38, 1.7e308),
    *(math.nan, math.inf, -math.inf, "", "x", "0", "1e-3", "auto", "none", "null", "?" * 300),
    *("../../x", "a/b", "é", "\ud800", "\x00", "a\nb", "${epochs}", "a" * 5000, "os.system"),
    *([], [0], [1], [-1], [True], ["x"], [[1]], [0.5, 2.0], [math.nan], [2**62], [1] * 2000),
    *({}, {"a": 1}, {"a": {"b": [1]}}, {"_target_": "os.system"}, {"_target_": 3}, LINEAR),
    {"_target_": "dpbench.mechanism.schedules.Constant", "value": 1.0},
    {"_target_": "dpbench.mechanism.schedules.Pieces", "values": [1.0], "until": []},
    {"_target_": "dpbench.mechanism.schedules.Stairs", "of": LINEAR, "number": 3},
]
WORDS = [
    *("", "0", "-1", "1.5", "1e-300", "1e300", "nan", "-inf", "true", "null", "x", "'a b'", "é"),
    *("9" * 30, "9" * 5000, "[]", "[1,[2]]", "[[[[", "{}", "{a:1}", "{_target_:os.system}", "???"),
    *("a" * 300, "../x", "${epochs}", "${oc.env:HOME}", "${", "1,2", "range(3)", "glob(*)", "\\"),
    *("interval(0,1)", "'", "a=b", "a b", "tag(log,1)", "\x00", "\n", "int(x)", "{_partial_:true}"),
]

# What an option needs beside it, so that more than the first refusal is seen.
IMAGES = ["dataset=cifar10"]
CUSTOM = ["dataset.name=mine", "dataset.rows=999", "dataset.classes=2"]
TABLE = [*CUSTOM, "dataset.features=7", "dataset.groups=[all]"]
NEXT_WORDS = [
    *("dataset=csv", *TABLE, "dataset.classes=1", "dataset.task=language_model"),
    *("dataset.text=t", "dataset.target=t", "dataset.length=32", "dataset.vocabulary=100"),
]
NEEDS = {
    "fairlens": ["dataset=dutch"],
    "dpsgld": ["privacy=follows"],
    "dpsghmc": ["privacy=follows", "optimizer=momentum"],
    "follows": ["method=dpsgld"],
    "dp_fedsgd": ["users=iid"],
    "dp_fedavg": ["users=shards"],
    **{name: ["model=bert_tiny"] for name in ("snli", "movie_reviews")},
    **{name: [f"dataset={name}", *TABLE] for name in ("csv", "hub")},  # csv is a tracker as well
    **{name: [*CUSTOM, "dataset.groups=[a,b]"] for name in ("images", "hub_images")},
    "bert_tiny": ["dataset=snli"],
    **dict.fromkeys(["causal_lm", "gpt2_tiny"], NEXT_WORDS),
    **{name: ["dataset=snli"] for name in ("text", "minilm")},  # of models and of features
    **dict.fromkeys(["resnet9", "wrn16_4", "vit_tiny", "cnn_tanh"], IMAGES),
    "scattering": ["dataset=mnist"],
    "efficientnet_lite0": IMAGES,
    "pretrained": ["features.backbone=test_vit", f"features.checksum=sha256:{'0' * 64}"],
    **dict.fromkeys(
        ["shifts_flips", "dp_mix_self", "half", "private", "sample_convnet", "tempered_cnn"], IMAGES
    ),
}
LARGE = {"bert_base", "vit_base"}
"""Of the same kind as a small one, and slow to plan."""


def leaves(node, place=()):
    """Every key of a mapping, however deep, as the path to it."""
    for key, value in node.items():
        yield (*place, key)
        if isinstance(value, dict):
            yield from leaves(value, (*place, key))


@pytest.fixture(scope="module")
def bases():
    """Configurations by overrides, with the keys that each is the first to have."""
    found, known = {}, set()
    with grammar():
        choices = [
            [f"{group}={name}", *NEEDS.get(name, [])]
            for group in groups()
            if group != "table"
            for name in options(group)
            if name not in LARGE
        ]
        for overrides in ([], *choices):
            config = compose(overrides)
            group = overrides[0].split("=")[0] if overrides else None
            part = config if group is None else {group: config.get(group) or {}}
            target = (part.get(group) or {}).get("_target_") if group else None
            keys = [k for k in leaves(part) if k[0] != "choices" and (target, k) not in known]
            known.update((target, key) for key in keys)
            found[tuple(overrides)] = config, keys
    assert len(known) > 250
    return found


def planned(config):
    check_execution(RunConfig((), config))
    plan(build(config))


def changed(config, changes):
    """The configuration with other values at some of its keys."""
    config = copy.deepcopy(config)
    for (*path, last), value in changes:
        node = config
        for key in path:
            node = node.get(key) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node[last] = copy.deepcopy(value)
    return config


def cases(bases, draw, each, pairs):
    """Configurations: `each` values at every key, and some with several keys changed."""
    for overrides, (config, keys) in bases.items():
        for key in keys:
            for value in draw.sample(VALUES, each):
                yield overrides, changed(config, [(key, value)]), (key, value)
    keys_of = [(o, c, [k for k in leaves(c) if k[0] != "choices"]) for o, (c, _) in bases.items()]
    for _ in range(pairs):
        overrides, config, keys = draw.choice(keys_of)
        changes = [(draw.choice(keys), draw.choice(VALUES)) for _ in range(draw.choice([2, 3]))]
        yield overrides, changed(config, changes), changes


def faults(bases, each, pairs):
    count, found = 0, []
    for overrides, config, what in cases(bases, random.Random(13), each, pairs):
        count += 1
        if why := fault(lambda config=config: planned(config)):
            found.append(f"{' '.join(overrides)} with {str(what)[:200]}: {why}")
    return count, found


@pytest.fixture
def no_accountants(monkeypatch):
    """Nobody computes an epsilon, which takes a second for each new ledger."""
    monkeypatch.setattr("dpbench.training.plan.statement", lambda *_: {})
    monkeypatch.setattr("dpbench.training.budget.calibrate", lambda *_: 1.0)


@pytest.mark.long
def test_every_key_takes_every_kind_of_value_or_refuses_it(bases, no_accountants):
    count, found = faults(bases, each=4, pairs=150)
    assert not found, "\n".join(found)
    assert count > 1000


@pytest.mark.long
def test_every_key_takes_every_kind_of_value_or_refuses_it_with_the_accountants(bases):
    count, found = faults(bases, each=12, pairs=600)
    assert not found, "\n".join(found)
    assert count > 3500


def spelled(bases, draw, count):
    """Words of a command line: keys with some, added, taken away or set."""
    keys = [(overrides, key) for overrides, (_, keys) in bases.items() for key in keys]
    for _ in range(count):
        overrides, key = draw.choice(keys)
        sign = draw.choice(["", "", "", "", "+", "++", "~"])
        yield [*overrides, f"{sign}{'.'.join(key)}={draw.choice(WORDS)}"]


def said(bases, count):
    found = [
        f"{' '.join(words)[:200]}: {why}"
        for words in spelled(bases, random.Random(14), count)
        if (why := fault(lambda words=words: prepare(run_config(words))))
    ]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_a_key_takes_what_a_command_line_says_or_refuses_it(bases, no_accountants):
    said(bases, 120)


@pytest.mark.long
def test_a_key_takes_what_a_command_line_says_or_refuses_it_at_length(bases, no_accountants):
    said(bases, 3000)


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        *({"noise_multiplier": value} for value in (1.2e-38, 1e-6, 0.01, 1e6, 3e38)),
        *({"delta": value} for value in (5e-324, 1e-100, 1 - 1e-16)),
        *({"noise_multiplier": None, "epsilon": e} for e in (1e-6, 1e6, 3e38)),
        {"noise_multiplier": None, "epsilon": 1e6, "accountant": "pld"},
    ],
    ids=str,
)
def test_an_extreme_budget_is_planned_or_refused(change):
    config = compose([])
    assert fault(lambda: planned({**config, "privacy": {**config["privacy"], **change}})) is None
