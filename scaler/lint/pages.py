"""Reads the rules' pages in docs/reference/rules and renders the rules: a list for the terminal, one page, the README.

A page is the only place of a rule's sentences. The wheel carries the pages beside this module. They are read when a
rule is listed or explained, never while objects are checked.

Worked example: `sentences(RULES["TG003"])` has the fix "Use `type: external-push`."; `python -m scaler.lint.pages`
prints docs/reference/rules/README.md.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from exporter.kubernetes.resources import CHECKED
from scaler.config.rules import RULES, Rule

_FOLDERS = (Path(__file__).parent / "pages", Path(__file__).parents[2] / "docs/reference/rules")
_WHY, _FIX = "**Why.** ", "**Fix.** "

_HEAD = """\
# Rules of `tidegate check`

`tidegate check` reads configurations and manifests before you apply them, and `helm template . | tidegate check -` what
a chart renders. `tidegate check --namespace NS` reads a live namespace: it only lists, and reports and skips what RBAC
forbids. All objects of a run are checked together.

Each line of the output is `file:line:column: severity RULE: key: message`. A line without a rule is an error that
Tidegate, Kubernetes or KEDA would reject; it cannot be silenced. `-o json` has the same fields; `rule` is null there.

| severity | meaning | exit status |
|---|---|---|
| error | it does not work, or contradicts itself | 1 |
| warning | it works, with harm | 0, with `--strict` 1 |
| info | a default that costs something | 0 |

`--rules` lists the rules with their fixes, and `--explain TG001` prints a page. In the example of a page, the lines
marked `-` trigger the rule, and those marked `+` replace them.

`--ignore TG031` silences a rule for a run. An annotation silences it for an object and needs a reason:

```yaml
metadata:
  annotations:
    tidegate.dev/check-ignore: "TG021 because Argo CD ignores /spec/replicas; TG061, TG062 because the gateway drains"
```

A live check needs only `list`, for one namespace within that namespace, on
{resources}.

"""


class Sentences(NamedTuple):
    """The sentences of a page, one line of Markdown each. summary: the finding of the rule. "" if the page lacks it."""

    summary: str
    why: str
    fix: str


def page(rule: Rule) -> str:
    """The text of the rule's page, with the severity in its heading."""
    head = f"# {rule.id} {rule.name} ({rule.severity})\n\n"
    text = _text(rule)
    if text is None:
        return f"{head}This installation lacks {rule.page}; the source has it in docs/reference/rules."
    return head + text.partition("\n")[2].strip("\n")


def sentences(rule: Rule) -> Sentences:
    """The sentences of the rule's page; all are "" if the page is missing."""
    paragraphs = [" ".join(each.split()) for each in (_text(rule) or "").split("\n\n")]
    found = {mark: each.removeprefix(mark) for mark in (_WHY, _FIX) for each in paragraphs if each.startswith(mark)}
    return Sentences(paragraphs[1] if len(paragraphs) > 1 else "", found.get(_WHY, ""), found.get(_FIX, ""))


def listed() -> str:
    """One line per rule, for the terminal."""
    width = max(len(rule.name) for rule in RULES.values())
    lines = (f"{rule.id}  {rule.severity:<7}  {rule.name:<{width}}  {sentences(rule).fix}" for rule in RULES.values())
    return "\n".join(line.rstrip() for line in lines)


def readme() -> str:
    """The text of docs/reference/rules/README.md."""
    rows = (f"- [{rule.id}]({rule.page}) {rule.name} ({rule.severity})" for rule in RULES.values())
    names = sorted({f"`{resource}`" for resource in CHECKED})
    head = _HEAD.replace("{resources}", fill(", ".join(names), 119, break_on_hyphens=False))
    return head + "\n".join(rows) + "\n"


def _text(rule: Rule) -> str | None:
    """None if no folder has the page."""
    files = (folder / rule.page for folder in _FOLDERS)
    return next((file.read_text(encoding="utf-8") for file in files if file.is_file()), None)


if __name__ == "__main__":
    print(readme(), end="")  # noqa: T201
