"""Table 2 and Figures 2 to 12 of the calibration paper from start to end, small and on digits."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from matplotlib.figure import Figure
from transformers import BertForSequenceClassification

from dpbench.comparison.reproduce.command import reproduce
from dpbench.comparison.reproduce.render import render
from dpbench.comparison.reproduce.target import target_of
from dpbench.learning.data import mnist
from dpbench.learning.metrics.calibration import CAVEAT
from dpbench.privacy.accountants import rdp
from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import options
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import parse
from dpbench.runs.training.plan import privacy_statement
from dpbench.step.clipping.choice import STYLES
from dpbench.system.errors import Unavailable, UserError

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["dataset=digits", "model=mlp", "epochs=2", "batch_size=128", "table.seeds=[0]"]
CURVES = ["diagnostics.steps=null", "diagnostics.epochs=1"]
PAPERS_OWN = ["calibration_fig4", "calibration_fig5", "calibration_fig8", "calibration_fig9",
              "calibration_fig11", "calibration_fig12"]  # fmt: skip
PAPERS_CLIPS = {"abadi", "automatic", "normalise", "global", "batch", "none"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """One folder for all targets, which share runs."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture
def small(results, monkeypatch):
    """small(name, ...): the files of a target on digits, by suffix, and the axes of its picture.

    The picture is drawn once, and coarsely: tests of figures look at all of its formats.
    """

    def make(name, *changes, on=SMALL):
        axes, save = [], Figure.savefig

        def saving(figure, *arguments, **settings):
            if settings["format"] == "png":
                axes.extend(figure.axes)
                save(figure, *arguments, **{**settings, "dpi": 30})

        monkeypatch.setattr(Figure, "savefig", saving)
        before = set((results / "tables").glob("*")) if (results / "tables").exists() else set()
        overrides = [*on, *changes, f"results_dir={results}"]
        text = reproduce(name, overrides)
        stem = target_of(name, overrides).stem
        files = {p.name.partition(".")[2]: p for p in (results / "tables").glob(f"{stem}.*")}
        assert text == files["md"].read_text()
        assert set((results / "tables").glob("*")) >= before
        return text, files, axes

    return make


def cells(text, heading):
    """The cells of a Markdown block, line by line, without its head and its ruler."""
    block = text.partition(f"## {heading}\n\n")[2].partition("\n\n")[0]
    return [[c.strip() for c in line.strip("| ").split("|")] for line in block.splitlines()[2:]]


@pytest.mark.slow
def test_table_2_has_a_row_for_each_arm_and_its_temperature_caveat(small):
    text, files, _ = small("calibration_table2")
    arms = ["non_private", "small_r", "large_r", "mixup"]
    assert [line[0] for line in cells(text, "Ours")] == [f"digits, {arm}" for arm in arms]
    epsilons = {line[0]: line[4] for line in cells(text, "Privacy")}
    assert epsilons["digits, non_private"] == "inf"
    assert len({epsilons[f"digits, {arm}"] for arm in arms[1:]}) == 1, "R enters the epsilon"
    assert CAVEAT in text
    tidy = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    eces = {line["method"]: line["ours"] for line in tidy if line["column"] == "ece"}
    assert len(set(eces.values())) == 4, "two arms are the same run"


@pytest.mark.slow
def test_arms_differ_by_what_the_paper_says():
    runs = {
        arm: compose(["+table=calibration_table2", "dataset=mnist", f"table.arm={arm}"])
        for arm in ("non_private", "small_r", "large_r", "mixup")
    }
    assert {arm: run["choices"]["method"] for arm, run in runs.items()} == {
        "non_private": "sgd", "small_r": "dpsgd", "large_r": "dpsgd", "mixup": "dpsgd",
    }  # fmt: skip
    small, large, mixed = runs["small_r"], runs["large_r"], runs["mixup"]
    assert (small["method"]["bound"], large["method"]["bound"]) == (1, 200)
    for run in (small, large):
        assert run["optimizer"]["lr"] * run["method"]["bound"] == pytest.approx(0.15)
        assert run["privacy"]["noise_multiplier"] == 1.1
        assert (run["epochs"], run["batch_size"]) == (60, 256)
    assert mixed["schedule"]["bound"]["values"] == [1, 200]
    assert mixed["schedule"]["lr"]["values"] == [1, 1 / 200]
    assert mixed["schedule"]["bound"]["until"] == [0.95]


SYSTEMS = compose(["+table=calibration_systems"])["table"]["methods"]
FEDERATED = ["dp_fedsgd", "dp_fedavg"]


@pytest.mark.slow
def test_the_systems_are_every_clip_and_optimiser_once():
    runs = {arm: compose(["+table=calibration_systems", f"table.arm={arm}"]) for arm in SYSTEMS}
    assert len({digest(run) for run in runs.values()}) == len(runs) == 20
    private = [run for arm, run in runs.items() if arm != "non_private"]
    assert {run["method"]["clip"] for run in private} == PAPERS_CLIPS
    assert {run["method"]["style"] for run in private} == {*STYLES}
    assert {run["choices"]["optimizer"] for run in private} == {*options("optimizer")}
    assert {"dpsgd_jl", "dpsgld", *FEDERATED} < {run["choices"]["method"] for run in private}
    assert {run["epochs"] for run in private} == {20}


@pytest.mark.parametrize("arm", ["small_r", "dpsgd_jl", "dpsgld", *FEDERATED])
def test_all_private_systems_have_the_same_epsilon(arm):
    run, planned = prepare(run_config(["+table=calibration_systems", f"table.arm={arm}"]))
    assert rdp(planned.ledger, run.privacy.delta) == pytest.approx(1.46, rel=5e-3)


def test_unknown_arms_are_refused_and_without_clipping_there_is_no_epsilon():
    for arm in ("unclipped", "batch"):
        run, planned = prepare(run_config(["+table=calibration_systems", f"table.arm={arm}"]))
        said = privacy_statement(run, planned)
        assert (said["guarantee"], said["rdp"], said["gdp"]) == ("none", None, None)
    with pytest.raises(UserError, match=r"table.arm=small is unknown.*small_r"):
        compose(["+table=calibration_table2", "table.arm=small"])
    with pytest.raises(UserError, match="is set by the table"):
        target_of("calibration_table2", ["table.arm=small_r"])


@pytest.mark.long
def test_the_systems_beside_each_other(small):
    alike = [arm for arm in SYSTEMS if arm not in FEDERATED]
    chosen = ["table.methods=[non_private,small_r,layerwise,large_r,global,unclipped,dpsgld]"]
    text, files, _ = small("calibration_systems", *chosen)
    assert set(chosen[0].partition("[")[2].strip("]").split(",")) < {*alike}
    claims = [line[-1] for line in cells(text, "Claims")]
    assert claims == ["undecided"] * 5, "one seed decides nothing"
    tidy = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    losses = {line["method"]: line["ours"] for line in tidy if line["column"] == "train_loss"}
    assert len(set(losses.values())) == len(losses) == 7, "two rows are the same run"


@pytest.mark.slow
def test_the_federated_systems(small):
    chosen = ["table.methods=[dp_fedsgd,dp_fedavg]", "users=iid", "users.number=200"]
    text, _, _ = small("calibration_systems", *chosen)
    assert [line[0] for line in cells(text, "Ours")] == FEDERATED


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [4, pytest.param(6, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)]
)
def test_curves_have_a_panel_for_each_quantity_and_a_line_for_each_arm(small, number):
    text, files, axes = small(f"calibration_fig{number}", *CURVES)
    assert "## Numbers" in text
    figure = compose([f"+table=calibration_fig{number}"])["table"]["figure"]
    assert len(axes) == len(figure["panels"])
    for axis, panel in zip(axes, figure["panels"], strict=True):
        arms = panel.get("arms") or compose([f"+table=calibration_fig{number}"])["table"]["methods"]
        over_time = panel["x"] in ("epoch", "step")
        # Against R there is one line through the private arms and a level one without privacy.
        expected = len(arms) * len(panel["lines"]) if over_time else 2
        assert len(axis.lines) == expected
        assert len(axis.collections) == expected - (not over_time), "the bands"
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    ends = {r["arm"]: float(r["mean"]) for r in rows if r["panel"] == "test accuracy"}
    assert len(set(ends.values())) == len(ends) > 1, "two arms are the same"
    assert "## Privacy" in text


@pytest.mark.slow
def test_accuracy_against_r_is_what_the_runs_ended_with(small):
    _, files, axes = small("calibration_fig6", *CURVES)
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    last = {r["arm"]: r["mean"] for r in rows if r["panel"] == "test accuracy"}
    against = {r["arm"]: r for r in rows if r["panel"] == "accuracy against R"}
    for arm, mean in last.items():
        assert float(against[arm]["mean"]) == pytest.approx(float(mean))
    assert {r["x"] for r in against.values()} == {"", "1.0", "5.0", "20.0", "60.0", "200.0"}
    assert list(axes[2].lines[0].get_xdata()) == [1, 5, 20, 60, 200]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("number", [5, 7, 9])
def test_reliability_has_a_diagram_for_each_arm(small, number):
    arms = 3
    _, files, axes = small(f"calibration_fig{number}", *CURVES)
    assert len(axes) == 2 * arms
    assert all(len(axis.patches) >= 15 for axis in axes)
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    assert len(rows) == arms * 15 * (len({row["seed"] for row in rows}))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "arms"), [(2, 4), (11, 3), (12, 2)])
def test_a_histogram_has_a_line_for_each_arm(small, number, arms):
    _, files, axes = small(f"calibration_fig{number}", *CURVES)
    assert len(axes) == 1
    assert len(axes[0].patches) == arms
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    assert sum(float(row["count"]) for row in rows) == 359 * arms


@pytest.mark.long
def test_the_heat_map_has_a_cell_for_each_pair(small):
    pairs = "table.conditions=[{optimizer.lr:[0.02,0.5],method.bound:[0.2,25]}]"
    _, files, axes = small("calibration_fig3", pairs)
    *axes, bar = axes
    assert [axis.get_title() for axis in axes] == ["accuracy (%)", "ECE (%)", "MCE (%)"]
    assert all(len(axis.texts) == 4 for axis in axes)
    assert not bar.texts
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    mine = [100 * float(r["value"]) for r in rows
            if (r["panel"], r["x"], r["y"]) == ("ECE", "0.5", "0.2")]  # fmt: skip
    assert axes[1].texts[1].get_text() == f"{mine[0]:.1f}"


@pytest.mark.long
def test_a_regression_figure_has_both_losses_of_its_data_set(small):
    _, _, axes = small("calibration_fig10", *CURVES, "diagnostics.train=true")
    assert [axis.get_title() for axis in axes] == ["training loss", "test loss"]
    assert all(len(axis.lines) == len(axis.collections) == 3 for axis in axes)


@pytest.mark.long
@pytest.mark.data
def test_the_regressions_are_run_as_the_paper_has_it(small, regression_folder):
    asked = ["epochs=20", "table.seeds=[0,1]", f"data_dir={regression_folder}"]
    text, _, axes = small("calibration_fig10", on=asked)
    assert [axis.get_title() for axis in axes] == ["wine", "california", "", ""]
    assert [axis.get_ylabel() for axis in axes] == ["training loss", "", "test loss", ""]
    assert all(len(axis.lines) == len(axis.collections) == 3 for axis in axes)
    printed = {line[0]: line[1] for line in cells(text, "Privacy")}
    assert printed["wine, small_r"] == "4.40"
    assert printed["california, large_r"] == "4.41"


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS_OWN)
def test_without_pretrained_weights_no_other_model_is_shown(name, offline, no_statement, tmp_path):
    with pytest.raises(Unavailable, match=f"^{name}: needs pre-trained weights: "):
        reproduce(name, [f"results_dir={tmp_path}"])
    assert not list(tmp_path.rglob("*.*"))


@pytest.mark.slow
def test_networks_without_their_package_say_so(no_statement, monkeypatch, tmp_path):
    monkeypatch.setattr("dpbench.data.fetch.published_weights.installed_folder", lambda _: None)
    asked = ["table.methods=[norms,lora]", f"results_dir={tmp_path}"]
    with pytest.raises(Unavailable, match=r"^finetune_table3-part: .* is not installed"):
        reproduce("finetune_table3", asked)
    assert not list(tmp_path.rglob("*.*"))


MIXED = "table.conditions=[{dataset:[digits],model:[mlp]},{dataset:[cifar10],model:[vit_base]}]"


@pytest.mark.slow
def test_a_row_without_weights_shows_the_reason(small, offline):
    whole = ["table.published=null", "table.epsilon=null", "table.methods=[small_r]"]
    text, _, _ = small("calibration_table2", MIXED, *whole, on=SMALL[2:])
    digits, cifar = cells(text, "Ours")
    assert digits[0] == "digits, mlp, small_r"
    assert digits[1].endswith("(1)")
    assert cifar[:2] == ["cifar10, vit_base, small_r", cifar[1]]
    assert cifar[1].startswith(
        "not possible: needs pre-trained weights: those of timm/vit_base_patch16"
    )
    planned = {line[0]: line[-1] for line in cells(text, "Privacy")}
    assert planned[cifar[0]].endswith("Not run: as planned.")
    assert not planned[digits[0]].endswith("Not run: as planned.")


@pytest.mark.slow
def test_rows_without_their_data_say_so(monkeypatch, tmp_path):
    def lost(source, folder):
        raise Unavailable("a file is missing: put it there.")

    monkeypatch.setattr(mnist, "fetch", lost)
    asked = ["dataset=mnist", "table.methods=[small_r]", "table.seeds=[0]"]
    with pytest.raises(Unavailable, match="calibration_table2-part: a file is missing: put it"):
        reproduce("calibration_table2", [*asked, f"results_dir={tmp_path}"])


def unreachable(*_, **__):
    raise LocalEntryNotFoundError("please check your connection")


@pytest.fixture
def offline(monkeypatch):
    """A machine whose cache of models is empty, and that reaches no hub."""
    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreachable)
    monkeypatch.setattr(BertForSequenceClassification, "from_pretrained", unreachable)


EPSILONS = {  # RDP, PLD and the paper's GDP, of the plan; then as printed
    "cifar10": ("table2", 0.866, 0.600, 0.442, 1.96),
    "mnist": ("table2", 2.593, 2.378, 2.321, 2.32),
    "snli": ("table2", 6.497, 5.133, 1.255, 1.25),
    "california": ("fig10", 5.067, 4.592, 4.393, 4.41),
    "wine": ("fig10", 4.906, 4.396, 4.397, 4.40),
}


@pytest.mark.slow
@pytest.mark.parametrize("dataset", EPSILONS)
def test_every_printed_epsilon_recounted(dataset):
    name, rdp, pld, gdp, printed = EPSILONS[dataset]
    run, planned = prepare(
        run_config([f"+table=calibration_{name}", f"dataset={dataset}", "table.arm=large_r"])
    )
    said = privacy_statement(run, planned)
    assert [said["rdp"], said["pld"], said["gdp"]] == pytest.approx([rdp, pld, gdp], abs=2e-3)
    # The paper's accountant is GDP's, and all but one of its numbers are.
    assert (said["claimed"], said["claimed_by"]) == (said["gdp"], "gdp")
    assert (said["claimed"] == pytest.approx(printed, abs=0.02)) == (dataset != "cifar10")


def committed(name):
    path = ROOT / "results" / "tables" / f"{name}.records.jsonl"
    return [parse(line, name) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_a_table_claims_by_its_paper_s_accountant_whatever_its_records_say():
    records = committed("calibration_table2-part")
    private = [r for r in records if r.privacy["guarantee"] == "proven"]
    old = [r.privacy | {"claimed": 9.99, "claimed_by": "rdp"} for r in private]
    records = [replace(r, privacy=p) for r, p in zip(private, old, strict=True)]
    wanted = target_of("calibration_table2", ["dataset=mnist", "table.seeds=[0]"])
    text = render(wanted, records)["md"].decode()
    assert "reasoning (GDP)" in text
    claims = {line[0]: line[2] for line in cells(text, "Privacy")}
    assert claims == {f"mnist, {arm}": "2.32" for arm in ("small_r", "large_r", "mixup")}


@pytest.mark.slow
def test_the_sign_table_claims_what_the_note_s_formula_gives_and_prints_nothing():
    records = committed("sign_table1-cpu_hour")
    wanted = target_of("sign_table1", ["scale=cpu_hour"])
    lines = cells(render(wanted, records)["md"].decode(), "Privacy")
    assert {line[1] for line in lines} == {"-"}
    claims = {line[0].rpartition(", ")[2]: set() for line in lines}
    for line in lines:
        claims[line[0].rpartition(", ")[2]].add(line[2])
    assert len(claims.pop("dp_signlosgd")) == 4
    assert set.union(*claims.values()) == {"-"}
