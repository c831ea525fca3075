"""Every command that is shown is one that there is: its options, its targets, its values, its files.

Nothing is run. `tidegate` is asked as click would parse it; make for its targets; Helm for the chart's values; kubectl
for the files of this repository. Other people's programs are taken at their word.
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
OURS = {"tidegate", ".venv/bin/tidegate", "tidegate/bin/tidegate"}
KNOWN = {
    "cd", "cp", "curl", "date", "docker", "git", "grep", "helm", "kind", "kubectl", "make", "pip", "promtool",
    "pytest", "python", "python3", "tidegate/bin/pip", ".venv/bin/python",
}  # fmt: skip


def commands(text):
    """Each command line of a console block, without its prompt; continued lines are one."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def simple(line):
    """The simple commands of a line, between pipes, `&&` and `;`: no redirections, no assignments, nothing in $()."""
    line = re.sub(r"\$\([^)]*\)", "X", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    found, words = [], []
    for word in lexer:
        if set(word) <= set("|&;"):
            found.append(words)
            words = []
        else:
            words.append(word)
    found.append(words)
    for words in found:
        bare = list(words)
        while bare and re.match(r"^\w+=", bare[0]):
            bare.pop(0)
        if ">" in bare:
            del bare[bare.index(">") :]
        if bare and bare[0] != "export":
            yield bare


LINES = [(block, line) for block in every_block("console") for line in commands(block.text)]
SIMPLE = [pytest.param(words, id=f"{block}: {' '.join(words)[:50]}") for block, line in LINES for words in simple(line)]


def test_console_blocks_show_commands():
    assert LINES
    assert [str(block) for block in every_block("console") if not commands(block.text)] == []


@pytest.mark.parametrize("words", SIMPLE)
def test_a_command_that_is_shown_exists(words):
    program, *rest = words
    if program in OURS:
        takes(rest)
    elif program == "make":
        assert [word for word in rest if "=" not in word and word not in TARGETS] == []
    elif program == "helm":
        assert list(unknown_values(rest)) == []
    elif program == "kubectl":
        assert [path for path in paths(rest) if not (ROOT / path).exists()] == []
        within = rest[rest.index("--") + 1 :] if "--" in rest else []
        if within[:1] == ["tidegate"]:
            takes(within[1:])
    else:
        assert program in KNOWN, f"{program}: add it to KNOWN if it is somebody else's program"


def test_what_is_run_in_the_pod_is_on_its_path():
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    program = Path(image.partition('ENTRYPOINT ["')[2].partition('"')[0])

    assert f"PATH={program.parent}:" in image


def takes(words):
    """Raises click.UsageError where `tidegate` would."""
    if words[:1] in (["--help"], ["-h"], ["--version"], ["-V"]):
        return
    name, *rest = words
    command = main.commands.get(name)
    assert command is not None, f"tidegate has no command {name}"
    if not {"--help", "-h"} & set(rest):
        command.make_context(name, rest, parent=click.Context(main))


def unknown_values(words):
    for option, value in pairwise(words):
        if option == "--set":
            key = value.partition("=")[0]
            if not is_value(key):
                yield key
        elif option in {"--values", "-f"} and "/" in value:
            yield from unknown_in(yaml.safe_load((ROOT / value).read_text(encoding="utf-8")))


def paths(words):
    for option, value in pairwise(words):
        if option in {"-f", "--filename", "-k", "--kustomize"} and re.match(r"(deploy|docs|dashboards)/", value):
            yield value


def spoken():
    """Words in backticks that begin as a command of ours would."""
    for page in PAGES:
        for words in in_backticks(page):
            if re.match(r"(tidegate|make) [a-z]", words):
                yield pytest.param(words, id=f"{page}: {words}")


@pytest.mark.parametrize("words", list(spoken()))
def test_a_command_that_is_spoken_of_exists(words):
    """Half a command will do in a sentence, and its options must be there all the same."""
    program, name, *rest = re.sub(r"…|\.\.\.", "X", words).split()
    if program == "make":
        assert name in TARGETS
        return
    command = main.commands.get(name)
    assert command is not None
    options = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
    assert [word for word in rest if word.startswith("-") and word.partition("=")[0] not in options] == []


def test_the_values_that_a_sentence_sets_are_the_charts():
    said = {found[1] for page in PAGES for words in in_backticks(page) if (found := SET.match(words))}
    dotted = {key for key in said if key.partition(".")[0] in VALUES}

    assert {"state.volume", "networkPolicy.enabled"} <= dotted
    assert [key for key in dotted if not is_value(key)] == []
