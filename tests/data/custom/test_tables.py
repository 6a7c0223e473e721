"""A table of the user's own: what is public of it, how it is encoded, and what is refused."""

import hashlib
import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest
import torch

from dpbench.cli.commands import run
from dpbench.config.compose import compose
from dpbench.config.settings import SCIENTIFIC
from dpbench.execution.load_or_run import load_or_run
from dpbench.execution.prepare import build, run_of
from dpbench.execution.rerun import CommandBuilder
from dpbench.execution.run_config import run_config
from dpbench.records.digest import digest, scientific
from dpbench.records.reading import read
from dpbench.system.errors import UserError
from dpbench.verify.command import verify
from dpbench.verify.records import contradictions
from tests.data.custom.tables import data_of, settings


def test_the_configuration_has_public_values_and_no_path(people):
    config = compose(settings(people, "dataset.group=sex"))
    assert config["choices"]["dataset"] == "csv:people_of"
    part = scientific(config)["dataset"]
    assert "file" not in part
    assert {key: part[key] for key in ("rows", "features", "classes", "groups", "checksum")} == {
        "rows": 60,
        "features": 2 + 3 + 2,
        "classes": 2,
        "groups": ["f", "m"],
        "checksum": f"sha256:{hashlib.sha256(people.read_bytes()).hexdigest()}",
    }


def test_features_are_numbers_by_statistics_of_the_training_rows_then_categories(people):
    dataset, data = data_of(people, "dataset.group=sex")
    assert data.train.inputs.shape == (dataset.train_size, 7) == (48, *dataset.shape)
    assert len(data.test) == 12
    torch.testing.assert_close(data.train.inputs[:, :2].mean(0), torch.zeros(2))
    torch.testing.assert_close(data.train.inputs[:, :2].std(0), torch.ones(2))
    frame = pd.read_csv(people)
    every = torch.cat([data.train.inputs, data.test.inputs])
    assert every[:, 2:].sum(0).tolist() == [
        *(float((frame["town"] == town).sum()) for town in ("Bonn", "Rome", "York")),
        *(float((frame["sex"] == sex).sum()) for sex in ("f", "m")),
    ]
    assert torch.equal(data.train.groups, data.train.inputs[:, 6].long())


def test_each_row_keeps_its_target(people):
    _, data = data_of(people, "dataset.standardise=none")
    for split in (data.train, data.test):
        assert torch.equal(split.targets, (split.inputs[:, 1] > 50).long())


def test_the_split_is_fixed_unless_it_is_that_of_the_seed(people):
    for more, same in (([], True), (["dataset.split_seed=null"], False)):
        splits = [data_of(people, *more, seed=seed)[1].test.inputs for seed in (0, 1)]
        assert torch.equal(*splits) == same


def test_public_constants_need_no_statistics(people):
    constants = ["dataset.standardise={age:[40,20]}"]
    dataset, data = data_of(people, *constants)
    _, plain = data_of(people, "dataset.standardise=none")
    torch.testing.assert_close(data.train.inputs[:, 0], (plain.train.inputs[:, 0] - 40) / 20)
    assert torch.equal(data.train.inputs[:, 1], plain.train.inputs[:, 1])
    assert not any("epsilon" in note for note in dataset.notes)
    assert "training rows, which no epsilon covers" in data_of(people)[0].notes[-1]
    assert "the classes and the groups are taken to be public" in dataset.notes[0]


def test_numbers_can_be_categories_and_columns_dropped(people):
    frame = pd.read_csv(people)
    dataset, _ = data_of(people, "dataset.categorical=[age]", "dataset.drop=[town,wage,sex]")
    assert dataset.shape == (frame["age"].nunique(),)


def test_regression_has_numbers_as_targets(people):
    more = ["dataset.task=regression", "dataset.target=wage", "dataset.drop=[rich]"]
    dataset, data = data_of(people, *more)
    assert (dataset.task, dataset.classes, data.train.targets.dtype) == (
        "regression",
        1,
        torch.float32,
    )


@pytest.mark.parametrize(
    ("standardise", "mean", "deviation"),
    [("none", 0.0, 1.0), ("{wage:[2000,500]}", 2000.0, 500.0), ("{age:[40,15]}", 0.0, 1.0)],
)
def test_a_target_of_regression_is_scaled_by_constants(people, standardise, mean, deviation):
    more = ["dataset.task=regression", "dataset.target=wage", "dataset.drop=[rich]"]
    _, data = data_of(people, *more, f"dataset.standardise={standardise}")
    scaled = (pd.read_csv(people)["wage"] - mean) / deviation
    assert data.target_unit == deviation
    assert sorted(data.train.targets.tolist() + data.test.targets.tolist()) == pytest.approx(
        sorted(scaled), rel=1e-6
    )


def test_a_target_of_regression_has_the_z_scores_of_training_rows(people):
    more = ["dataset.task=regression", "dataset.target=wage", "dataset.drop=[rich]"]
    dataset, data = data_of(people, *more)
    assert data.train.targets.mean().item() == pytest.approx(0, abs=1e-6)
    assert data.train.targets.std().item() == pytest.approx(1)
    assert "z-scores of the features and the target" in dataset.notes[-1]


def test_a_changed_file_is_another_run_and_a_moved_one_is_not(people, tmp_path):
    before = digest(compose(settings(people)))
    (tmp_path / "elsewhere").mkdir()
    moved = people.rename(tmp_path / "elsewhere" / people.name)
    assert digest(compose(settings(moved))) == before
    moved.write_text(moved.read_text().replace("Bonn", "Kiel"))
    assert digest(compose(settings(moved))) != before


def test_a_file_that_changes_before_it_is_read_is_refused(people):
    run = run_of(run_config(settings(people)))
    people.write_text(people.read_text().replace("Bonn", "Kiel"))
    with pytest.raises(UserError, match=r"give the original data, or leave out dataset.checksum"):
        run.dataset.load(people.parent, 0)


def test_a_group_without_test_examples_has_a_warning_and_no_numbers(people, tmp_path):
    people.write_text(people.read_text() + "30,60,Bonn,x,yes\n")
    asked = settings(people, "dataset.group=sex", "dataset.drop=[sex]")
    assert 2 in data_of(people, *asked[3:])[1].train.groups
    small = ["model=logistic", "epochs=1", "batch_size=16", f"results_dir={tmp_path}"]
    with pytest.warns(UserWarning, match="^no test example is in group x: its accuracy and all ga"):
        record = read(load_or_run(run_config([*asked, *small])))
    assert np.isnan([record.metrics[f"test/accuracy{name}"] for name in ("/x", "_gap")]).all()


@pytest.mark.slow
def test_a_record_has_its_command_and_is_verified_without_the_file(people, tmp_path, capsys):
    small = ["model=logistic", "epochs=1", "batch_size=16", f"results_dir={tmp_path}"]
    record = read(load_or_run(run_config(settings(people, "dataset.group=sex", *small))))
    assert "test/accuracy/f" in record.metrics
    of_record = f"record={tmp_path / 'runs' / record.digest}.json"
    with pytest.raises(UserError, match=r"as no record has .*: give dataset\.file=PATH\.$"):
        run([of_record, f"results_dir={tmp_path / 'other'}"])
    people.unlink()
    assert [line for line in contradictions(record) if "uncommitted" not in line] == []
    words = shlex.split(CommandBuilder()(record.config))[2:]
    assert digest(compose(words)) == record.digest
    assert str(people) not in json.dumps(record.config)
    assert {*record.config} == {*SCIENTIFIC, "choices"}
    said, problems = verify([f"results_dir={tmp_path}", "rerun=1"])
    assert "and trained 0 again" in said
    assert not [found for found in problems if "retrained" in found.description]
    assert "records do not have the path of your own data" in capsys.readouterr().err


def test_a_table_without_a_target_or_with_another_separator_is_told_what_it_lacks(people):
    with pytest.raises(UserError, match=r"must name the column to predict: choose from age, rich"):
        compose([*settings(people), "dataset.target=null"])
    people.write_text(people.read_text().replace(",", ";"))
    with pytest.raises(UserError, match=r"has a single column, 'age;.*dataset\.separator=\";\""):
        compose(settings(people))
    compose([*settings(people), 'dataset.separator=";"'])


@pytest.mark.parametrize(("separator", "typed"), [("\t", r"\t"), ("|", "|")])
def test_the_separator_of_a_file_is_named_as_it_is_typed(people, separator, typed):
    people.write_text(people.read_text().replace(",", separator))
    setting = f'dataset.separator="{typed}"'
    with pytest.raises(UserError, match=re.escape(setting)):
        compose(settings(people))
    assert compose([*settings(people), setting])["dataset"]["classes"] == 2


def test_decimal_commas_in_a_file_of_semicolons_name_its_separator(people):
    people.write_text(people.read_text().replace(",", ";").replace(".", ","))
    with pytest.raises(UserError, match=r"if ';' separates them, set 'dataset\.separator=\";\"'\."):
        compose(settings(people))


def test_a_separator_is_one_character_and_other_formats_are_told_their_reader(people):
    with pytest.raises(UserError, match=r"separator must be one character, .* got ';;'"):
        compose([*settings(people), 'dataset.separator=";;"'])
    file = people.with_suffix(".parquet")
    pd.read_csv(people).to_parquet(file)
    asked = [word.replace(str(people), str(file)) for word in settings(people)]
    with pytest.raises(UserError, match=r"read it by dataset=hub dataset\.path=.*\.parquet\."):
        compose(asked)


def test_a_target_of_many_numbers_is_told_of_regression(people):
    frame = pd.read_csv(people).assign(rich=range(60))
    frame.to_csv(people, index=False)
    with pytest.warns(UserWarning, match=r"hardly any rows: .* set dataset\.task=regression\."):
        compose(settings(people))


def test_a_number_names_the_column_of_that_name(people):
    frame = pd.read_csv(people).rename(columns={"rich": "3", "town": "2020", "age": "1"})
    frame.to_csv(people, index=False)
    numbers = ["dataset.target=3", "dataset.group=2020", "dataset.drop=[1]"]
    texts = ['dataset.target="3"', 'dataset.group="2020"', "dataset.drop=['1']"]
    config = compose(settings(people, *numbers))
    assert config["dataset"]["target"] == "3"
    assert digest(config) == digest(compose(settings(people, *texts)))
    constants = compose(settings(people, "dataset.target=3", "dataset.standardise={1:[40,20]}"))
    assert constants["dataset"]["standardise"] == {"1": [40, 20]}


def test_na_and_none_are_categories_where_all_else_is_text_and_missing_among_numbers(people):
    frame = pd.read_csv(people)
    text = people.read_text().replace("Bonn", "NA").replace("Rome", "None")
    people.write_text(text)
    with pytest.warns(UserWarning, match="column town of .* has 'N.*' in .* rows, .* category"):
        config = compose(settings(people, "dataset.group=town"))
    assert config["dataset"]["groups"] == ["NA", "None", "York"]
    frame["town"] = "Bonn"
    frame["age"] = frame["age"].astype(str)
    frame.loc[3, "age"] = "NA"
    frame.to_csv(people, index=False)
    with pytest.raises(UserError, match="has no usable value in column age of row 4: complete"):
        compose(settings(people))


def test_all_cells_without_a_value_are_counted_at_once(people):
    frame = pd.read_csv(people)
    frame.loc[3:5, "age"] = np.nan
    frame.loc[7, "town"] = None
    frame.to_csv(people, index=False)
    with pytest.raises(UserError) as told:
        compose(settings(people))
    said = str(told.value)
    assert "in column age of row 4, one of 4 such cells (age 3, town 1): complete" in said
    assert "dataset.drop=[age,town]" in said


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d/%m/%Y", "%d.%m.%y", "%Y-%m-%d %H:%M"])
def test_dates_are_not_taken_for_categories_unless_they_are_declared(people, form):
    frame = pd.read_csv(people)
    days = pd.date_range("2020-01-01", periods=25).strftime(form)
    frame["sold"] = [days[row % 25] for row in range(len(frame))]
    gap = frame.copy()
    gap.loc[0, "sold"] = None
    gap.to_csv(people, index=False)
    with pytest.raises(UserError, match=rf"has dates, such as '{days[1]}'"):
        compose(settings(people))
    frame.to_csv(people, index=False)
    with pytest.raises(UserError, match=r"column sold of .*people of\.csv has dates, such as"):
        compose(settings(people))
    declared, dropped = (
        compose([*settings(people), f"dataset.{how}=[sold]"])["dataset"]["features"]
        for how in ("categorical", "drop")
    )
    assert declared == dropped + 25


def test_a_column_that_numbers_the_rows_and_a_rare_class_are_warned_of(people):
    frame = pd.read_csv(people).assign(id=range(1, 61))
    frame.loc[:2, "rich"] = "very"
    frame.to_csv(people, index=False)
    with (
        pytest.warns(UserWarning, match=r"column id of .*people of\.csv numbers the rows"),
        pytest.warns(UserWarning, match=r"hardly any rows: very \(3\); dataset\.group=rich"),
    ):
        compose(settings(people))


@pytest.mark.parametrize("name", ["zip", "Zip Code", "home_postcode", "plz", "shopId"])
def test_whole_numbers_that_are_codes_by_their_name_are_warned_of(people, name):
    frame = pd.read_csv(people).assign(**{name: [10_000 + 7 * (n % 30) for n in range(60)]})
    frame.to_csv(people, index=False)
    with pytest.warns(UserWarning, match=rf"{name} of .* is taken as a number, .*=\[{name}\] if"):
        compose(settings(people))
    compose([*settings(people), f"dataset.categorical=['{name}']"])
    frame.rename(columns={name: "paid"}).to_csv(people, index=False)
    compose(settings(people))


COPIES = {
    "classification": lambda frame: frame["rich"].map({"yes": 1, "no": 0}),
    "regression": lambda frame: 0.9 * frame["wage"] + 3,
}


@pytest.mark.parametrize("task", COPIES)
def test_a_column_that_tells_the_target_is_warned_of(people, task):
    target = "rich" if task == "classification" else "wage"
    frame = pd.read_csv(people)
    frame.assign(again=COPIES[task](frame)).to_csv(people, index=False)
    words = settings(people, f"dataset.target={target}", f"dataset.task={task}")
    with pytest.warns(UserWarning, match=rf"^column again of .* tells the target {target} of"):
        compose(words)
    compose([*words, "dataset.drop=[again]"])


def test_a_target_of_regression_that_is_one_number_is_refused(people):
    pd.read_csv(people).assign(wage=7).to_csv(people, index=False)
    with pytest.raises(UserError, match=r"target=wage is the same number in all rows of"):
        compose(settings(people, "dataset.target=wage", "dataset.task=regression"))


@pytest.mark.parametrize("form", ["{}%", "${}", "{},5", "1{:020}"])
def test_numbers_as_texts_are_not_taken_for_categories(people, form):
    frame = pd.read_csv(people)
    frame.assign(age=[form.format(n % 25) for n in range(len(frame))]).to_csv(people, index=False)
    with pytest.raises(UserError, match=r"column age of .* has numbers as texts, such as"):
        compose(settings(people))


@pytest.mark.parametrize("sign", ["?", "-", "NA"])
def test_a_sign_for_no_value_among_the_classes_is_warned_of(people, sign):
    people.write_text(people.read_text().replace("yes\n", f"{sign}\n", 5))
    with pytest.warns(UserWarning, match=re.escape(f"has '{sign}' in 5 rows, which is a")):
        compose(settings(people))


@pytest.mark.parametrize("other", ["YES", "Yes ", "yes "])
def test_categories_that_differ_only_in_case_or_spaces_are_warned_of(people, other):
    people.write_text(people.read_text().replace("yes\n", f"{other}\n", 5))
    first, second = sorted(["yes", other])
    with pytest.warns(UserWarning, match=f"of.csv has '{first}' and '{second}', which are"):
        assert compose(settings(people))["dataset"]["classes"] == 3


def test_categories_that_differ_only_in_spaces_within_them_are_warned_of(people):
    text = people.read_text().replace("yes\n", "so so\n")
    people.write_text(text.replace("so so\n", "so  so\n", 5))
    with pytest.warns(UserWarning, match="has 'so  so' and 'so so', which are different"):
        compose(settings(people))


def test_a_space_at_the_end_of_a_column_s_name_is_seen(people):
    people.write_text(people.read_text().replace("rich", "rich ", 1))
    with pytest.raises(UserError, match=r"target=rich is unknown: did you mean 'rich '\?"):
        compose(settings(people))
    named = [word.replace("=rich", "='rich '") for word in settings(people)]
    assert compose(named)["dataset"]["classes"] == 2


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda text: text[: len(text) // 2].rpartition(",")[0], "no usable value in column "),
        (lambda text: "", "No columns to parse"),
        (lambda text: text.splitlines()[0], "has 0 rows"),
        (lambda text: text + '"1,2,3\n', "EOF inside string"),
        (lambda text: text + "1,2,3,4,5,6,7\n", "Expected 5 fields in line 62, saw 7"),
        (lambda text: text.replace("Bonn", "", 1), "no usable value in column town of row"),
        (lambda text: text.replace("rich", "poor"), "dataset.target=rich is unknown"),
        (lambda text: text.replace("no\n", "yes\n"), "or only one class in column rich"),
        (lambda text: text + "inf,1,Bonn,f,yes\n", "no usable value in column age of row 61"),
        (
            lambda text: text + "?,1,Bonn,f,yes\n",
            "people of.csv has numbers, but '?' in row 61: replace",
        ),
        (lambda text: text.replace("town", "age"), "has several columns named 'age'"),
        (
            lambda text: "\n".join(f"{row},n{n}" for n, row in enumerate(text.split())),
            "has 60 different texts in 60 rows, such as 'n1', like a column of names: leave",
        ),
    ],
)
def test_a_cut_or_wrong_file_is_one_sentence(people, spoil, sentence):
    people.write_text(spoil(people.read_text()))
    with pytest.raises(UserError) as told:
        compose(settings(people))
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_a_row_without_a_group_is_refused_where_the_group_is_no_feature_too(people):
    people.write_text(people.read_text() + "30,1,Bonn,,yes\n")
    asked = settings(people, "dataset.drop=[sex]")
    compose(asked)
    with pytest.raises(UserError, match="in column sex of row 61: complete the row, or remove it;"):
        compose([*asked, "dataset.group=sex"])


def test_a_file_that_is_no_text_is_one_sentence(people):
    people.write_bytes(bytes(range(256)))
    with pytest.raises(UserError, match="is not a table of values separated by ','"):
        compose(settings(people))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["dataset.target=rihc"], "dataset.target=rihc is unknown: did you mean rich?"),
        (["dataset.group=gender"], "dataset.group=gender is unknown: choose from"),
        (["dataset.group=wage"], "dataset.group=wage has fractional numbers in "),
        (["dataset.drop=[towm]"], "dataset.drop=towm is unknown: did you mean town?"),
        (["dataset.drop=town"], "dataset.drop must be a list of texts"),
        (["dataset.categorical=[3]"], "dataset.categorical=3 is unknown: choose from age"),
        (["dataset.categorical=3"], "dataset.categorical must be a list of texts or numbers"),
        (["dataset.drop=[true]"], "is quoted, as in 'dataset.drop=[\"true\"]'."),
        (["dataset.group=1e3"], "is quoted, as in 'dataset.group=\"1000.0\"'; choose from age"),
        (["dataset.drop=[rich]"], "dataset.target=rich cannot be dropped."),
        (["dataset.task=ranking"], "dataset.task=ranking is unknown"),
        (["dataset.task=regression"], "dataset.target=rich is not a number"),
        (["dataset.rows=61"], "dataset.rows is 61, but "),
        (["dataset.checksum='sha256:0'"], "but dataset.checksum is sha256:0"),
        (["dataset.file=nowhere.csv"], "nowhere.csv is not a file: give its path"),
        (["dataset.file=3"], "dataset.file must be the name of a file, got 3"),
        (["dataset.separator=''"], "dataset.separator must be one character"),
        (["dataset.standardise=test"], "dataset.standardise='test' is unknown: write train, none"),
        (["dataset.standardise={age:[1]}"], "dataset.standardise.age must be [mean, deviation"),
        (["dataset.standardise={agee:[1,2]}"], "dataset.standardise=agee is unknown"),
        (["dataset.standardise={town:[1,2]}"], "dataset.standardise=town is unknown: choose from"),
        (["~dataset.separator"], "your data set with `defaults: [csv]`, which has all"),
        (["dataset.test_share=0.001"], "leaves no example to test on"),
        (["dataset.name='a/b'"], "dataset.name='a/b' must consist of letters"),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(people, more, sentence):
    with pytest.raises(UserError) as told:
        run_of(run_config(settings(people, *more)))
    assert sentence in str(told.value)


def test_too_many_categories_are_refused(tmp_path):
    path = tmp_path / "names.csv"
    pd.DataFrame({"name": [f"n{i}" for i in range(1001)], "rich": np.arange(1001) % 2}).to_csv(
        path, index=False
    )
    with pytest.raises(UserError, match=r"1001 different values.*leave it out with dataset.drop"):
        compose(settings(path, "dataset.categorical=[name]"))


def test_categories_may_be_few_rows_or_mostly_numbers_if_they_are_said_to_be_categories(people):
    text = people.read_text()
    people.write_text(text + "?,1,Bonn,f,yes\n")
    dataset, _ = data_of(people, "dataset.categorical=[age]", "dataset.drop=[town,wage,sex]")
    assert dataset.shape == (pd.read_csv(people)["age"].nunique(),)
    people.write_text("\n".join([*text.split("\n")[:9], "20,1,Kiel,f,yes", "21,60,Hull,f,no"]))
    compose(settings(people))


def test_a_column_without_a_name_is_no_feature_unless_it_is_named(people):
    frame = pd.read_csv(people)
    frame.to_csv(people)
    with pytest.raises(UserError, match=r"a column without a name.*dataset.drop=\['Unnamed: 0'\]"):
        compose(settings(people))
    dataset, _ = data_of(people, "dataset.drop=['Unnamed: 0']")
    frame.to_csv(people, index=False)
    assert dataset.shape == data_of(people)[0].shape


def test_without_a_file_it_says_what_to_set():
    with pytest.raises(UserError, match=r"set dataset.file=FILE and dataset.target=COLUMN\.$"):
        build(compose(["dataset=csv"]))


def test_a_table_by_the_datasets_library_is_the_same_as_by_its_file(people, no_cache):
    direct, data = data_of(people, "dataset.group=sex")
    asked = ["dataset=hub", f"dataset.path='{people}'", "dataset.target=rich", "dataset.group=sex"]
    run = run_of(run_config(asked))
    config = run.config
    assert config["choices"]["dataset"] == "hub:people_of"
    assert "path" not in scientific(config)["dataset"]
    assert (run.dataset.shape, run.dataset.checksum) == (direct.shape, direct.checksum)
    loaded = run.dataset.load(people, 0)
    assert torch.equal(loaded.train.inputs, data.train.inputs)
    assert torch.equal(loaded.test.targets, data.test.targets)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["dataset.path=a/b"], "a/b may change on the hub: set dataset.revision to a commit"),
        (["dataset.path=a/b", "dataset.revision=main"], "not to 'm"),
        (["dataset.path=a/b/c"], "'a/b/c' is neither a folder nor a name on the hub"),
        (["dataset.path=3"], "dataset.path must be a name on the hub or a folder, got 3"),
        (["dataset.path=a/b", f"dataset.revision={'0' * 40}"], "dataset.path=a/b cannot be"),
        (["dataset.part=tset"], "cannot be loaded with dataset.part=tset"),
    ],
)
def test_files_that_cannot_be_loaded_are_one_sentence(people, no_cache, more, sentence):
    asked = ["dataset=hub", f"dataset.path='{people}'", "dataset.target=rich", *more]
    with pytest.raises(UserError) as told:
        compose(asked)
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("cut.jsonl", '{"age": 1, "rich": 0}\n{"age": 1', r"=train: JSON parse error: .*\."),
        ("empty.jsonl", "", r"=train: it has no rows\."),
        ("commas.tsv", "age,rich\n1,0\n", r"has a single column, 'age,rich': save it with commas"),
        ("typo.jsonl", None, r"typo\.jsonl is not a file, as seen from"),
    ],
)
def test_a_file_without_a_table_is_told_why(tmp_path, no_cache, name, text, sentence):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=sentence):
        compose(["dataset=hub", f"dataset.path='{tmp_path / name}'", "dataset.target=rich"])


@pytest.mark.parametrize("other", ["more.csv", "rows.parquet"])
def test_a_table_of_a_folder_that_would_not_be_read_is_refused(people, no_cache, tmp_path, other):
    (tmp_path / "rows").mkdir()
    frame = pd.read_csv(people)
    frame.to_csv(tmp_path / "rows" / "train.csv", index=False)
    words = ["dataset=hub", f"dataset.path='{tmp_path / 'rows'}'", "dataset.target=rich"]
    compose(words)
    write = frame.to_csv if other.endswith("csv") else frame.to_parquet
    write(tmp_path / "rows" / other, index=False)
    with pytest.raises(UserError, match=rf"has {re.escape(other)}, of which the datasets library"):
        compose(words)
