"""Checks the page of each rule: the example before the fix triggers only that rule, the one after the fix no rule."""

import re
from pathlib import Path

import pytest

from scaler.config.rules import RULES
from scaler.lint import pages
from scaler.lint.pages import listed, page, readme, sentences
from tests.scaler.lint.manifests import sides

DOCS = Path(__file__).parents[3] / "docs/reference/rules"
ALL = pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)


@pytest.fixture
def found(rules_of, live_rules_of):
    """The rules of a text; for rules of a live cluster its objects count as live."""
    return lambda text, rule: (live_rules_of if rule.id >= "TG100" else rules_of)(text)


@ALL
def test_example_before_the_fix_triggers_only_its_rule(rule, found):
    assert set(found(sides(page(rule))[0], rule)) == {rule.id}


@ALL
def test_problem_has_the_severity_of_its_rule(rule, lint):
    lines = lint(sides(page(rule))[0])
    assert all(f": {rule.severity} {rule.id}: " in line for line in lines)
    assert lines or rule.id >= "TG100"  # rules of a live cluster


@ALL
def test_example_after_the_fix_is_clean(rule, found):
    assert found(sides(page(rule))[1], rule) == []


@ALL
def test_page_has_its_sentences_and_its_source(rule):
    text = (DOCS / rule.page).read_text(encoding="utf-8")
    assert text.startswith(f"# {rule.id} {rule.name}\n")
    assert all(sentence.endswith(".") for sentence in sentences(rule))
    assert re.search(r"\nSource: (<https://[^ >]+>|\[docs/[^ ]+\]\([^ ]+\))\n\Z", text)


@ALL
def test_page_is_printed_with_the_severity(rule):
    assert page(rule).startswith(f"# {rule.id} {rule.name} ({rule.severity})\n\n{sentences(rule).summary[:60]}")


def test_missing_page_fails_no_command(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "_FOLDERS", (tmp_path,))
    rule = RULES["TG001"]
    assert page(rule).startswith("# TG001 no-wake-source (warning)\n\nThis installation lacks TG001.md")
    assert sentences(rule) == ("", "", "")
    assert [line.split()[0] for line in listed().splitlines()] == list(RULES)


def test_each_rule_has_a_page():
    assert {file.name for file in DOCS.iterdir()} == {rule.page for rule in RULES.values()} | {"README.md"}


def test_table_of_rules_is_generated():
    assert (DOCS / "README.md").read_text(encoding="utf-8") == readme()


def test_ids_and_names_are_unique_and_sorted():
    assert [rule.id for rule in RULES.values()] == sorted(RULES)
    assert len({rule.name for rule in RULES.values()}) == len(RULES) == 65
    for rule in RULES.values():
        assert re.fullmatch(r"TG[0-9]{3}", rule.id)
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)


def test_terminal_list_has_a_line_per_rule():
    assert [line.split()[0] for line in listed().splitlines()] == list(RULES)
