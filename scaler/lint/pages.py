"""The rules for people to read: a list for the terminal, a rule's page, and the table of
docs/reference/rules/README.md.

The pages are those of docs/reference/rules; the wheel carries them beside this module.

Worked example: `page(RULES["TG001"])` begins with "# TG001 no-waker". `python -m scaler.lint.pages` prints the README.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from exporter.cluster.resources import CHECKED

from ..rules import RULES, Rule

_BESIDE = Path(__file__).parent / "pages"
_DOCS = Path(__file__).parents[2] / "docs/reference/rules"

_HEAD = """\
# Rules of `tidegate check`

`tidegate check` reads configurations and manifests before they are applied, `helm template . | tidegate check -` what a
chart would apply, and `tidegate check --namespace NS` what lives in a cluster (it only lists; a kind that RBAC refuses
is said and passed over). All objects of one run are seen together: an autoscaler, what it scales, and what else does.

Each line is `file:line:column: severity RULE: key: what`. A line without a rule is an error that Tidegate, Kubernetes
or KEDA would refuse: nobody can silence it. `-o json` has the same as `rule`, null without one.

| severity | means | exit status |
|---|---|---|
| error | it does not work, or contradicts itself | 1 |
| warning | it works, and will hurt | 0, with `--strict` 1 |
| info | a default that costs something | 0 |

`--rules` lists the rules, `--explain TG001` prints a page, `--ignore TG031` silences a rule for a run. For an object,
its annotation does, with a reason:

```yaml
metadata:
  annotations:
    tidegate.dev/check-ignore: "TG021 because Argo CD ignores /spec/replicas; TG061, TG062 because the gateway drains"
```

A live check needs `list` on what it reads, and nothing else; a namespace's check needs it in that namespace only:
{resources}.

"""


def page(rule: Rule) -> str:
    """The text of its page."""
    file = next(folder / rule.page for folder in (_BESIDE, _DOCS) if (folder / rule.page).is_file())
    return file.read_text(encoding="utf-8").rstrip("\n")


def listed() -> str:
    """One line per rule, for the terminal."""
    width = max(len(rule.name) for rule in RULES.values())
    return "\n".join(f"{rule.id}  {rule.severity:<7}  {rule.name:<{width}}  {rule.fix}" for rule in RULES.values())


def readme() -> str:
    """docs/reference/rules/README.md."""
    rows = [f"| [{rule.id}]({rule.page}) | {rule.name} | {rule.severity} | {rule.why} |" for rule in RULES.values()]
    names = sorted({f"`{resource}`" for resource in CHECKED})
    listed = fill(", ".join(names), 120, break_on_hyphens=False)
    return (
        _HEAD.replace("{resources}", listed)
        + "\n".join(["| rule | name | severity | why |", "|---|---|---|---|", *rows])
        + "\n"
    )


if __name__ == "__main__":
    print(readme(), end="")  # noqa: T201
