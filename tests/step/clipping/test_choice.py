"""Clips by name, as a configuration chooses them; what cannot be combined says why."""

import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build, prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.step.clipping import CLIPS, STYLES
from dpbench.system.errors import UserError


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("clip", CLIPS)
def test_a_clip_without_proof_is_labelled_and_no_other(clip, style):
    if (clip, style) == ("batch", "layerwise"):
        return
    method = build(compose([f"method.clip={clip}", f"method.style={style}"])).method
    doubtful = clip in ("batch", "none")
    assert method.guarantee.level == ("none" if doubtful else "proven")
    assert bool(method.clip.sensitivity.caveat) == doubtful
    assert ("sqrt(sum R_r^2)" in method.guarantee.why) == (style == "layerwise" and not doubtful)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["method.clip=abady"], "method.clip=abady is unknown: did you mean abadi"),
        (["method.style=layer"], "method.style=layer is unknown: did you mean layerwise"),
        (
            ["method.clip=batch", "method.style=layerwise"],
            "method.clip=batch cannot be layerwise: it has one factor for all of a batch",
        ),
        (
            ["method=dpsgd_f", "method.style=layerwise"],
            "dpsgd_f cannot be layerwise: its bounds belong to groups, not to layers; "
            "use method.style=flat",
        ),
        (
            ["method=dpsgd_global_adapt", "method.style=layerwise"],
            "Z is a bound on whole gradients",
        ),
        (["method=fairlens", "method.style=layerwise"], "one factor per example"),
        (["method.bound=[1,2]"], "one number per layer, which needs method.style=layerwise"),
        (["method=dpsgd_quantile", "method.clip=none"], "has no bound to adapt"),
        (["method.clip={name:automatic,constant:0}"], "the constant of automatic clipping must be"),
        (["method.clip={name:psac,regulator:1}"], "no 'regulator' in method.clip=psac: did you"),
        (["method.clip={name:tanh,constant:1}"], "there is no 'constant' in method.clip=tanh"),
        (["method.clip={constant:1}"], "method.clip=None is unknown"),
        (["method.clip=3"], "method.clip must be text or a mapping"),
    ],
)
def test_impossible_combinations_are_refused_with_the_reason(overrides, sentence):
    with pytest.raises(UserError) as refused:
        build(compose(overrides))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("method", ["dpsgd", "dpsgd_quantile", "disk"])
@pytest.mark.parametrize("style", STYLES)
def test_the_constant_of_a_clip_can_be_set(method, style):
    chosen = [f"method={method}", f"method.style={style}"]
    clips = ["automatic", "{name:automatic}", "{name:automatic,constant:0.5}"]
    named, same, other = (
        build(compose([*chosen, f"method.clip={clip}"])).method.clip for clip in clips
    )
    assert named == same != other
    assert "constant=0.5" in repr(other)
    assert "constant=0.01" in repr(named)


def test_bounds_that_do_not_fit_the_model_are_refused_before_any_data_is_read(tmp_path):
    asked = ["method.style=layerwise", f"data_dir={tmp_path / 'nowhere'}"]
    with pytest.raises(UserError, match="has 3 numbers and the model 2 trained layers"):
        prepare(run_config([*asked, "model.widths=[8]", "method.bound=[1,2,3]"]))
    assert prepare(run_config([*asked, "model.widths=[8]", "method.bound=[1,2]"]))


def test_the_choices_that_were_the_only_ones_leave_the_name_of_a_run_alone():
    before = compose([])
    older = {k: v for k, v in before["method"].items() if k not in ("clip", "style")}
    assert older != before["method"]
    assert digest(before) == digest({**before, "method": older})
    for other in ("method.clip=automatic", "method.style=layerwise"):
        assert digest(compose([other])) != digest(before)
