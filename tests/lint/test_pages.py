"""Each rule's page is its fixture: the first example fires that rule and no other, the second says nothing at all."""

import re
from pathlib import Path

import pytest

from scaler.lint.pages import listed, page, readme
from scaler.rules import RULES

DOCS = Path(__file__).parents[2] / "docs/reference/rules"
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ALL = pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)


@pytest.fixture
def told(rules_of, live_rules_of):
    """The rules of a text; for what only a cluster shows, of an object that lives in one."""
    return lambda text, rule: (live_rules_of if rule.id >= "TG100" else rules_of)(text)


@ALL
def test_the_first_example_of_a_page_fires_its_rule_and_no_other(rule, told):
    fires, _ = BLOCK.findall(page(rule))
    assert set(told(fires, rule)) == {rule.id}


@ALL
def test_what_fires_is_as_severe_as_its_rule_says(rule, lint):
    fires, _ = BLOCK.findall(page(rule))
    said = lint(fires)
    assert all(f": {rule.severity} {rule.id}: " in line for line in said)
    assert said or rule.id >= "TG100"  # those are of a cluster


@ALL
def test_the_same_made_right_is_clean(rule, told):
    _, right = BLOCK.findall(page(rule))
    assert told(right, rule) == []


@ALL
def test_a_page_says_what_its_rule_says(rule):
    said = " ".join(page(rule).split())
    source = rule.source.removeprefix("docs/").removeprefix("rules/")
    assert said.startswith(f"# {rule.id} {rule.name} **{rule.severity}**: {rule.why} **What to do.** {rule.fix}")
    assert source in said.rpartition("Source: ")[2]


def test_there_is_a_page_for_each_rule_and_no_other():
    assert {file.name for file in DOCS.iterdir()} == {rule.page for rule in RULES.values()} | {"README.md"}


def test_the_table_of_the_rules_is_made_from_them():
    assert (DOCS / "README.md").read_text(encoding="utf-8") == readme()


def test_ids_and_names_are_given_once_and_every_rule_has_all_its_sentences():
    assert [rule.id for rule in RULES.values()] == sorted(RULES)
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
    for rule in RULES.values():
        assert re.fullmatch(r"TG[0-9]{3}", rule.id)
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
        assert rule.why.endswith(".")
        assert rule.fix.endswith(".")
        assert rule.source.startswith(("https://", "docs/"))


def test_the_list_for_the_terminal_has_a_line_for_each():
    assert [line.split()[0] for line in listed().splitlines()] == list(RULES)
