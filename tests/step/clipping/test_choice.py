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


@pytest.mark.parametrize("method", ["dpsgd", "dpsgd_quantile", "disk"])
@pytest.mark.parametrize("style", STYLES)
def test_the_constant_of_a_clip_can_be_set(method, style):
    chosen = [f"method={method}", f"method.style={style}"]
    clips = ["automatic", "{name:automatic}", "{name:automatic,constant:0.5}"]
    named, same, other = (build(compose([*chosen, f"method.clip={c}"])).method.clip for c in clips)
    assert named == same != other
    assert "constant=0.5" in repr(other)
    assert "constant=0.01" in repr(named)


def test_bounds_that_do_not_fit_the_model_are_refused_before_any_data_is_read(tmp_path):
    asked = ["method.style=layerwise", f"data_dir={tmp_path / 'nowhere'}"]
    with pytest.raises(UserError, match="has 3 numbers and the model 2 trained layers"):
        prepare(run_config([*asked, "model.widths=[8]", "method.bound=[1,2,3]"]))
    assert prepare(run_config([*asked, "model.widths=[8]", "method.bound=[1,2]"]))


def test_without_clipping_the_bounds_of_layers_scale_the_noise_as_with_it():
    layered = ["method.style=layerwise", "method.bound=[3,4]"]
    bounds = {
        clip: build(compose([*layered, f"method.clip={clip}"])).method.clip.sensitivity.bound
        for clip in ("none", "abadi")
    }
    assert bounds == {"none": 5.0, "abadi": 5.0}
    with pytest.raises(UserError, match=r"needs method\.style=layerwise"):
        build(compose(["method.clip=none", "method.bound=[3,4]"]))


def test_a_clip_without_a_name_is_not_taken_for_one_called_none():
    with pytest.raises(UserError, match=r"^'name' is missing in method\.clip\.$"):
        build(compose(["method.clip={constant:0.5}"]))


def test_the_choices_that_were_the_only_ones_leave_the_name_of_a_run_alone():
    before = compose([])
    older = {k: v for k, v in before["method"].items() if k not in ("clip", "style")}
    assert older != before["method"]
    assert digest(before) == digest({**before, "method": older})
    for other in ("method.clip=automatic", "method.style=layerwise"):
        assert digest(compose([other])) != digest(before)
