"""Completion in the shell: `eval "$(dpbench --completion bash)"`, the same with zsh, and in fish
`dpbench --completion fish | source`.

The script contains all names, so that completing a word starts no process.
"""

import functools
from collections.abc import Iterator, Mapping

from dpbench.cli.registry import COMMANDS
from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import EXPERIMENTS, groups, options
from dpbench.system.arguments import completed
from dpbench.system.validate import one_of

CONFIG_DIR = "--config-dir"

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


def completion(shell: str) -> str:
    """The script that makes a shell complete commands, options and keys; UserError for an unknown
    shell."""
    one_of("--completion", shell, SHELLS)
    script, case = SHELLS[shell]
    cases = "\n".join(case.format(name, " ".join(words(name))) for name in COMMANDS)
    return script.format(cases=cases, commands=" ".join((*COMMANDS, "--version")))


def words(name: str) -> list[str]:
    """What may follow a command."""
    command = COMMANDS[name]
    named = groups() if command.names == "groups" else command.names and options(command.names)
    general = {"overrides": _overrides(), "names": (CONFIG_DIR,), "": ()}
    own = (word for kind in command.settings for word in completed(kind))
    return [*named, *command.flags, *own, *general[command.takes]]


@functools.cache
def _overrides() -> tuple[str, ...]:
    added = {"table": options("table"), "experiment": options(EXPERIMENTS)}
    named = (f"+{group}={name}" for group, names in added.items() for name in names)
    chosen = (
        f"{group}={name}" for group in groups() if group != "table" for name in options(group)
    )
    return (*chosen, *_keys(compose([])), *named, CONFIG_DIR)


def _keys(config: Mapping, prefix: str = "") -> Iterator[str]:
    for key, value in config.items():
        if isinstance(value, Mapping) and key != "choices":
            yield from _keys(value, f"{prefix}{key}.")
        elif not str(key).startswith("_") and key != "choices":
            yield f"{prefix}{key}="
