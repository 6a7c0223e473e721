"""Completion in the shell: `eval "$(dpbench --completion bash)"`, the same with zsh, and in fish
`dpbench --completion fish | source`.

The script contains all names, so that completing a word starts no process.
"""

from collections.abc import Iterator, Mapping

from dpbench.config.compose import compose, options
from dpbench.config.search_path import EXPERIMENTS, groups, names_in
from dpbench.system.validate import one_of

CONFIG_DIR = "--config-dir"

SUITES = ("suite=step", "suite=depth", "suite=table")
BENCH = (*SUITES, "case=", "contender=", "repeats=", "device=", "out=")
"""The settings of `dpbench bench`, whose module imports torch."""

BASH = """\
_dpbench() {{
    local line="${{COMP_LINE:0:COMP_POINT}}" words
    local current="${{line##* }}"
    case "${{COMP_WORDS[1]}}" in
{cases}
    *) words="{commands}" ;;
    esac
    ((COMP_CWORD == 1)) && words="{commands}"
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    # bash completes what follows the last =, where it breaks words.
    [[ $current == *=* && $COMP_WORDBREAKS == *=* ]] &&
        COMPREPLY=("${{COMPREPLY[@]#"${{current%"${{current##*=}}"}}"}}")
}}
complete -o nospace -F _dpbench dpbench"""

ZSH = """\
(($+functions[compdef])) || {{ autoload -Uz compinit && compinit; }}
_dpbench() {{
    local known
    case "$words[2]" in
{cases}
    *) known="{commands}" ;;
    esac
    ((CURRENT == 2)) && known="{commands}"
    compadd -S "" -- ${{=known}}
}}
compdef _dpbench dpbench"""

FISH = """\
function __dpbench_words
    set -l given (commandline -opc)
    set -l known "{commands}"
    switch "$given[2]"
{cases}
    end
    string split " " $known
end
complete -c dpbench -f -a '(__dpbench_words)'"""

SHELLS = {
    "bash": (BASH, '    {}) words="{}" ;;'),
    "zsh": (ZSH, '    {}) known="{}" ;;'),
    "fish": (FISH, '    case {}\n        set known "{}"'),
}
"""By shell, the script, and the case of one command in it."""


def completion(shell: str, commands: tuple[str, ...], configured: tuple[str, ...]) -> str:
    """The script that makes a shell complete commands, options and keys; UserError for an unknown
    shell."""
    one_of("--completion", shell, SHELLS)
    script, case = SHELLS[shell]
    by_command = words(commands, configured).items()
    cases = "\n".join(case.format(name, " ".join(known)) for name, known in by_command)
    return script.format(cases=cases, commands=" ".join((*commands, "--version")))


def words(commands: tuple[str, ...], configured: tuple[str, ...]) -> Mapping[str, list[str]]:
    """What may follow each command. configured: those whose arguments are overrides."""
    tables = options("table")
    overrides = [*_options(), *_keys(compose([])), *(f"+table={name}" for name in tables)]
    overrides += [*(f"+experiment={name}" for name in names_in(EXPERIMENTS)), CONFIG_DIR]
    known = dict.fromkeys(configured, overrides)
    known["run"] = ["-m", "--cfg", "--package", "--info", *overrides]
    known["reproduce"] = [*tables, "scale=", "power=", "layout=paper", *overrides]
    known |= {
        "list": [*groups(), CONFIG_DIR],
        "data": [*options("dataset"), "data_dir=", CONFIG_DIR],
    }
    known["bench"] = [*BENCH]
    known["table"] = ["rows=", "columns=", "metrics=", "best=validation", "out=", *groups()]
    known["checklist"] = [*tables, "method=", "baseline=", "metric=", "results_dir=", "out="]
    known["verify"] = [*tables, "results_dir=", "rerun=", CONFIG_DIR]
    return {name: known.get(name, ["results_dir=", "out="]) for name in commands}


def _options() -> Iterator[str]:
    for group in groups():
        if group != "table":
            yield from (f"{group}={option}" for option in options(group))


def _keys(config: Mapping, prefix: str = "") -> Iterator[str]:
    """Every key of a configuration that can be set, such as `optimizer.lr=`."""
    for key, value in config.items():
        if isinstance(value, Mapping) and key != "choices":
            yield from _keys(value, f"{prefix}{key}.")
        elif not str(key).startswith("_") and key != "choices":
            yield f"{prefix}{key}="
