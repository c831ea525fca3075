"""Every command in the documentation is valid: its options, its targets, its values, its files.

No command runs. click parses those of `tidegate`; those of make are compared with its targets, of Helm with the chart's
values, of kubectl with the files of this repository. Other programs are not checked.
"""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import click
import pytest
import yaml

from scaler.cli import main
from tests.docs.pages import PAGES, ROOT, every_block, in_backticks
from tests.docs.values import VALUES, is_value, unknown_in

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
SET = re.compile(r"(?:--set )?([a-zA-Z]+\.[a-zA-Z.]+)=[\w$]")
TIDEGATE = {"tidegate", ".venv/bin/tidegate", "tidegate/bin/tidegate"}
FOREIGN = {
    "cd", "cosign", "cp", "curl", "date", "docker", "eval", "git", "grep", "helm", "kind", "kubectl", "make", "pip",
    "promtool", "pytest", "python", "python3", "tidegate/bin/pip", ".venv/bin/python",
}  # fmt: skip


def commands(text):
    """Each command line of a console block, without its prompt; continued lines are one."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def simple(line):
    """The simple commands of a line, split at pipes, `&&` and `;`: without redirections, assignments and $()."""
    line = re.sub(r"\$\([^)]*\)", "X", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    found, arguments = [], []
    for word in lexer:
        if set(word) <= set("|&;"):
            found.append(arguments)
            arguments = []
        else:
            arguments.append(word)
    found.append(arguments)
    for arguments in found:
        bare = list(arguments)
        while bare and re.match(r"^\w+=", bare[0]):
            bare.pop(0)
        if ">" in bare:
            del bare[bare.index(">") :]
        if bare and bare[0] != "export":
            yield bare


LINES = [(block, line) for block in every_block("console") for line in commands(block.text)]
SIMPLE = [
    pytest.param(arguments, id=f"{block}: {' '.join(arguments)[:50]}")
    for block, line in LINES
    for arguments in simple(line)
]


def test_console_blocks_contain_commands():
    assert LINES
    assert [str(block) for block in every_block("console") if not commands(block.text)] == []


@pytest.mark.parametrize("arguments", SIMPLE)
def test_command_in_a_block_exists(arguments):
    program, *rest = arguments
    if program in TIDEGATE:
        parse_tidegate(rest)
    elif program == "make":
        assert [word for word in rest if "=" not in word and word not in TARGETS] == []
    elif program == "helm":
        assert list(unknown_values(rest)) == []
    elif program == "kubectl":
        assert [path for path in paths(rest) if not (ROOT / path).exists()] == []
        within = rest[rest.index("--") + 1 :] if "--" in rest else []
        if within[:1] == ["tidegate"]:
            parse_tidegate(within[1:])
    else:
        assert program in FOREIGN, f"{program}: add it to FOREIGN if it is another project's program"


def test_commands_for_the_pod_are_on_its_path():
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    program = Path(image.partition('ENTRYPOINT ["')[2].partition('"')[0])

    assert f"PATH={program.parent}:" in image


def parse_tidegate(arguments):
    """Raises click.UsageError if `tidegate` would."""
    if arguments[:1] in (["--help"], ["-h"], ["--version"], ["-V"]):
        return
    name, *rest = arguments
    command = main.commands.get(name)
    assert command is not None, f"tidegate has no command {name}"
    if not {"--help", "-h"} & set(rest):
        command.make_context(name, rest, parent=click.Context(main))


def unknown_values(arguments):
    for option, value in pairwise(arguments):
        if option == "--set":
            key = value.partition("=")[0]
            if not is_value(key):
                yield key
        elif option in {"--values", "-f"} and "/" in value:
            yield from unknown_in(yaml.safe_load((ROOT / value).read_text(encoding="utf-8")))


def paths(arguments):
    for option, value in pairwise(arguments):
        if option in {"-f", "--filename", "-k", "--kustomize"} and re.match(r"(deploy|docs|dashboards)/", value):
            yield value


def commands_in_sentences():
    """Text in backticks that begins like a command of this project."""
    for page in PAGES:
        for arguments in in_backticks(page):
            if re.match(r"(tidegate|make) [a-z]", arguments):
                yield pytest.param(arguments, id=f"{page}: {arguments}")


@pytest.mark.parametrize("arguments", list(commands_in_sentences()))
def test_command_in_a_sentence_exists(arguments):
    """A sentence may name part of a command, but its options must exist."""
    program, name, *rest = re.sub(r"…|\.\.\.", "X", arguments).split()
    if program == "make":
        assert name in TARGETS
        return
    command = main.commands.get(name)
    assert command is not None
    options = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
    assert [word for word in rest if word.startswith("-") and word.partition("=")[0] not in options] == []


def test_values_in_a_sentence_exist_in_the_chart():
    settings = {found[1] for page in PAGES for arguments in in_backticks(page) if (found := SET.match(arguments))}
    dotted = {key for key in settings if key.partition(".")[0] in VALUES}

    assert {"state.volume", "networkPolicy.enabled"} <= dotted
    assert [key for key in dotted if not is_value(key)] == []
