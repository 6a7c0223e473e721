"""A small table on digits, its files, and what they say."""

import csv
import io
import json
import subprocess
import sys

from dpbench.runs.records.reading import parse

TINY = """\
# @package _global_
# Source: nobody. Cost: seconds. Expect: nothing.
defaults:
  - columns@table.columns: tiny
  - override /dataset: digits
  - override /model: logistic
  - override /privacy: noise1

table:
  title: "Digits: a toy (Table 1)"
  paper: "Nobody 2020"
  published: tiny/table1.csv
  published_runs: 2
  epsilon: tiny/epsilon.csv
  baseline: sgd
  methods: [sgd, dpsgd, fairlens, dpsgd_f]
  variants: {dpsgd_f: [corrected, paper], dpsgd: [corrected, {optimizer.lr: 0.1}]}
  claims:
    cost:
      statement: "Privacy costs accuracy."
      source: page 1
      better: [sgd]
      than: [dpsgd]
      in: [acc]
  seeds: [0, 1]
  groups: ["3", "8"]
  spread: standard error
  notes: ["A note."]
  settings:
    - set: {epochs: 1, batch_size: 256, optimizer: {lr: 0.5}}
    - when: {method: dpsgd}
      set: {method: {bound: 0.5}}
"""
COLUMNS = """\
# Two columns.
acc: {metric: test/accuracy, factor: 100, digits: 1, better: higher}
pi_ab: {metric: privacy_cost_gap, factor: 100, digits: 1, better: lower}
"""
PUBLISHED = """\
method,column,value,spread
sgd,acc,80.0,0.5
dpsgd,acc,50.0,0.5
fairlens,acc,60.0,0.5
dpsgd_f,pi_ab,1.0,0.5
"""
NOTE = "digits: The publishers' split is not used: the test images are drawn by seed."
RUNS = 2 + 2 * 2 + 2 * 2  # sgd; dpsgd and dpsgd_f in both variants; fairlens cannot be


def start(checkout, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "dpbench", "reproduce", *map(str, arguments)],
        cwd=checkout,  # which comes before everything else with `python -m`
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tables(folder, name="tiny"):
    """The table's files for readers, byte for byte."""
    suffixes = ("md", "csv", "claims.csv", "tex")
    return {s: (folder / "tables" / f"{name}.{s}").read_bytes() for s in suffixes}


def measured(folder):
    """What the records say, apart from when and where."""
    found = {}
    for path in sorted((folder / "runs").glob("*.json")):
        fields = json.loads(path.read_text())
        del fields["provenance"], fields["checksum"]
        found[path.name] = json.dumps(fields, sort_keys=True)
    return found


def records(folder, name):
    lines = (folder / "tables" / f"{name}.records.jsonl").read_text().splitlines()
    return [parse(line, name) for line in lines]


def verdicts(folder, name):
    rows = csv.DictReader(io.StringIO((folder / "tables" / f"{name}.csv").read_text()))
    return {row["verdict"] for row in rows}


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rewrite(file, change):
    """Change the records of a table's file: a function from a record to its text."""
    lines = [parse(line, "x") for line in file.read_text().splitlines()]
    file.write_text("".join(f"{change(record)}\n" for record in lines))
