"""Silences rules with a reason; errors that Tidegate would refuse cannot be silenced."""

import json

import pytest
from click.testing import CliRunner

from scaler.cli import main

_SCALED = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: chat
  annotations: {{tidegate.dev/check-ignore: {ignore}}}
spec:
  scaleTargetRef: {{name: chat}}
  minReplicaCount: 1
  maxReplicaCount: 20
  triggers: [{{type: external-push, metadata: {{scalerAddress: "tidegate:6000", engine: {engine}}}}}]
"""


def _text(ignore, engine="vllm"):
    return _SCALED.format(ignore=json.dumps(ignore), engine=engine)


def test_both_rules_report_without_an_annotation(rules_of):
    assert rules_of(_text("x").replace('  annotations: {tidegate.dev/check-ignore: "x"}\n', "")) == ["TG031", "TG032"]


@pytest.mark.parametrize(("ignore", "left"), [
    ("TG031 because the cluster's window is 30 s", ["TG032"]),
    ("TG031, TG032 because it is a test", []),
    ("TG031 because a; TG032 because b", []),
    ("TG060 because of nothing here", ["TG031", "TG032"]),
])  # fmt: skip
def test_rule_with_a_reason_is_silent_for_that_object(ignore, left, rules_of):
    assert rules_of(_text(ignore)) == left


@pytest.mark.parametrize(("ignore", "message"), [
    ("TG031", 'TG031 has no reason: write "TG031 because ..."'),
    ("TG031 because ", 'TG031 has no reason: write "TG031 because ..."'),
    ("TG999 because I say so", "TG999 is no rule: `tidegate check --rules` lists them"),
    ("", "must be rules and a reason, such as \"TG061 because the gateway drains\", got ''"),
    ("TG031 I say", "must be rules and a reason, such as \"TG061 because the gateway drains\", got 'TG031 I say'"),
])  # fmt: skip
def test_annotation_that_silences_nothing_is_an_error_at_its_position(ignore, message, lint):
    lines = [line for line in lint(_text(ignore)) if "TG092" in line]
    line, column = (5, 44) if "got" in message else (5, 17)
    assert lines == [f"0.yaml:{line}:{column}: error TG092: metadata.annotations.tidegate.dev/check-ignore: {message}"]
    assert len(lint(_text(ignore))) == 3


def test_error_without_a_rule_cannot_be_silenced(rules_of):
    assert rules_of(_text("TG031, TG032 because it is a test", engine="vlm")) == [None]


def test_silencing_annotation_makes_no_workload(rules_of):
    ignore = "annotations: {tidegate.dev/check-ignore: TG063 because}"
    text = f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a, {ignore}}}\n"
    assert rules_of(text) == ["TG092"]
    assert rules_of(text.replace("because", "because x")) == []


@pytest.fixture
def check(tmp_path):
    def run(text, *options):
        (tmp_path / "a.yaml").write_text(text)
        return CliRunner().invoke(main, ["check", str(tmp_path / "a.yaml"), *options])

    return run


def test_run_may_ignore_rules_of_files_and_configurations(check):
    text = _text("TG031 because x")
    assert check(text, "--ignore", "TG032").output == "1 file(s) fine\n"
    assert check(text, "--ignore", "TG031,TG032").output == "1 file(s) fine\n"
    assert check("scrape: {interval: 5s}\n", "--ignore", "TG090").output == "1 file(s) fine\n"


def test_unknown_rule_is_a_usage_error(check):
    for option in ("--ignore", "--explain"):
        done = check(_text("TG031 because x"), option, "TG999")
        assert (done.exit_code, "TG999 is no rule: --rules lists them" in done.output) == (2, True)


def test_warnings_fail_only_with_strict_and_hints_never_do(check):
    text = _text("TG031 because x")
    assert check(text, "--strict").exit_code == 0
    warned = text.replace("minReplicaCount: 1", "minReplicaCount: 0")
    assert check(warned).exit_code == 0
    assert check(warned, "--strict").exit_code == 1
