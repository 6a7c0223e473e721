from dpbench.comparison.dashboard.controls import choices, filters
from dpbench.comparison.dashboard.values import metric_entry

ROW = {"dataset": "d", "model": "m", "method": "x", "status": "complete"}


def test_numbers_are_offered_in_their_order_and_swept_settings_are_axes():
    rows = [ROW | {"seed": seed} for seed in ("10", "2")] + [ROW | {"seed": "2", "dataset": None}]
    found = {one["name"]: one["options"] for one in filters(rows, {"x": "X"}, [])}
    assert found["seed"] == [("2", "2"), ("10", "10")]
    assert (found["dataset"], found["method"]) == ([("d", "d")], [("x", "X")])
    swept = [{"name": name, "values": ["1", "2"], "numeric": name == "lr"} for name in ("lr", "o")]
    assert [one["name"] for one in filters([], {}, swept) if one["swept"]] == ["lr", "o"]
    assert choices([], swept, [])["axis"] == [("epsilon", "ε"), ("lr", "lr")]
    assert choices([metric_entry("seconds")], [], [])["axis"][1] == ("seconds", "seconds of a run")


def test_a_metric_of_utility_is_the_default_and_says_where_it_is_better():
    metrics = [metric_entry(f"test/{name}") for name in ("ece", "accuracy", "accuracy/a")]
    found = choices(metrics, [], [])
    assert found["metric"][0] == ("test/accuracy", "accuracy ↑")
    assert ("test/accuracy/a", "accuracy: a ↑") in found["metric"]
    assert found["metric"][-1] == ("test/accuracy/a", "accuracy: a ↑")
