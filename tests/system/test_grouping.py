from dpbench.system.grouping import grouped


def test_keys_and_values_keep_their_order():
    assert [*grouped([("b", 1), ("a", 2), ("b", 0)]).items()] == [("b", [1, 0]), ("a", [2])]
