from dpbench.comparison.dashboard.controls import choices, filters
from dpbench.comparison.dashboard.values import metric_entry

ROW = {"dataset": "d", "model": "m", "method": "x", "status": "complete"}


def test_numbers_are_offered_in_their_order_and_audits_have_no_data_set():
    rows = [ROW | {"seed": seed} for seed in ("10", "2")] + [ROW | {"seed": "2", "dataset": None}]
    found = {one["name"]: one["options"] for one in filters(rows, {"x": "X"}, [])}
    assert found["seed"] == [("2", "2"), ("10", "10")]
    assert (found["dataset"], found["method"]) == ([("d", "d")], [("x", "X")])


def test_a_swept_setting_is_a_filter_and_an_axis_if_it_is_a_number():
    swept = [{"name": name, "values": ["1", "2"], "numeric": name == "lr"} for name in ("lr", "o")]
    assert [one["name"] for one in filters([], {}, swept) if one["swept"]] == ["lr", "o"]
    assert choices([], swept)["axis"] == [("epsilon", "ε"), ("lr", "lr")]


def test_seconds_are_an_axis_where_they_were_measured():
    assert choices([metric_entry("seconds")], [])["axis"][1] == ("seconds", "seconds of a run")


def test_a_metric_of_utility_is_the_default_and_says_where_it_is_better():
    metrics = [metric_entry(f"test/{name}") for name in ("ece", "accuracy", "accuracy/a")]
    found = choices(metrics, [])
    assert found["metric"][0] == ("test/accuracy", "accuracy ↑")
    assert ("test/accuracy/a", "accuracy: a ↑") in found["metric"]
    assert found["calibration"] == [("test/ece", "ECE ↓")]
