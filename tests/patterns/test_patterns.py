"""Every regular expression of the product takes linear time, so that no tenant's text can block the daemon."""

import time

import pytest

from scaler.config import Config, Kubernetes
from scaler.config.errors import TriggerErrors
from scaler.policy.overrides import OverrideError, read_brake
from scaler.workloads.triggers import read_metadata
from tests.patterns.ambiguity import SCANS, Automaton, problem
from tests.patterns.usages import METHODS, usages
from tests.scaler.workloads.objects import Cluster, deployment

USAGES = usages()

# Patterns whose linear time does not follow from the pattern alone, and the reason why they are linear.
EXCEPT = {
    ("exporter/textformat/parser.py", "_PAIRS"): "it is applied only to what _COMMON has matched",
}


def file_and_name(one):
    return one.position.partition(":")[0], one.name


def representative_methods(one):
    """Returns one method of each kind: the cost depends on where a match may begin and may end."""
    scans = one.methods & SCANS
    return ["search"] * bool(scans) + sorted((one.methods if one.methods != METHODS else {"fullmatch"}) - scans)


@pytest.mark.parametrize("one", USAGES, ids=str)
def test_every_pattern_takes_linear_time(one):
    if file_and_name(one) not in EXCEPT:
        problems = {method: problem(one.pattern, one.flags, method) for method in representative_methods(one)}
        assert set(problems.values()) <= {None}, f"{one}: {one.pattern!r}: {problems}"


def test_every_exception_is_needed():
    for key in EXCEPT:
        matching = [one for one in USAGES if file_and_name(one) == key]
        assert any(
            problem(one.pattern, one.flags, method) for one in matching for method in representative_methods(one)
        ), key


def spent_s(apply, text):
    begin = time.process_time()
    apply(text)
    return time.process_time() - begin


@pytest.mark.parametrize("one", USAGES, ids=str)
def test_eight_times_longer_text_never_takes_sixty_times_as_long(one):
    """The ratio is 8 for linear and 64 for quadratic time. Texts repeat one or two letters of the pattern."""
    if file_and_name(one) in EXCEPT:
        return
    letters = Automaton(one.pattern, one.flags).letters[:12]
    bad = b"\x00" if isinstance(one.pattern, bytes) else "\x00"
    for method in representative_methods(one):
        apply = getattr(one.compiled, "findall" if method == "search" else method)
        for first in letters:
            for second in letters:
                short, long = ((first + second) * count + bad for count in (128, 1024))
                # The smallest of five ratios counts: other load on the machine can only increase a ratio.
                ratios = (spent_s(apply, long) / max(spent_s(apply, short), 1e-3) for _ in range(5))
                assert any(ratio < 40 for ratio in ratios), f"{one}: {first + second!r}"


@pytest.mark.parametrize(("pattern", "method"), [
    ("(a+)+b", "fullmatch"),
    ("(?:a|b|ab)*c", "fullmatch"),
    ("(a*)*b", "fullmatch"),
    ("a*a*b", "fullmatch"),
    ("x*y*x*z", "match"),
    (r"\s*,?\s*z", "match"),
    ("a+b", "search"),
    (r"://\S*@", "sub"),
    (r"\[[^\]]*\]", "sub"),
    (r"(?m)^[\s-]*kind:", "search"),
    (r",(?![^()]*\))", "split"),
    (rb'"(?:[^"\\]|\\.)*"', "findall"),
    (r"\s+until\s+((?:(?!\bbecause\b).)+?)(?:\s+because\s+(.+))?", "fullmatch"),
])  # fmt: skip
def test_pattern_with_superlinear_time_is_refused(pattern, method):
    assert problem(pattern, method=method)


@pytest.mark.parametrize(("pattern", "method"), [
    ("a+b", "fullmatch"),
    ("a+", "search"),
    (r"[a-z]([-a-z]*[a-z])?(\.[a-z]([-a-z]*[a-z])?)*", "fullmatch"),
    (r"\bsleep ([0-9]+)\b", "search"),
    (r"(?<![0-9])([0-9]++)(ms|s)", "findall"),
    (r"(?m)^[ -]*kind:", "search"),
    (rb"[ \t]*+#[ \t]*+TYPE[ \t]++", "match"),
    (r'"(?:[^"\\]|\\.)*"?', "sub"),
    (rb'"[^"]*"', "findall"),
])  # fmt: skip
def test_pattern_with_linear_time_is_accepted(pattern, method):
    assert problem(pattern, method=method) is None


LONG = 300_000


def metadata_error(metadata):
    with pytest.raises(TriggerErrors) as caught:
        read_metadata(metadata, "metadata")
    return str(caught.value)


def brake_error(text):
    with pytest.raises(OverrideError) as caught:
        read_brake(text)
    return str(caught.value)


@pytest.mark.parametrize(("error", "expected"), [
    (lambda: brake_error("freeze until " + " " * LONG), "must be at most 512 characters long, and has 300013"),
    (lambda: metadata_error({"engine": "v" * LONG}), "metadata: must have values of at most 1024 characters"),
    (lambda: metadata_error({"schedules": "0 " * LONG}), "for schedules"),
    (lambda: metadata_error({"e" * LONG: "vllm"}), "metadata: must have keys of at most 1024 characters"),
    (lambda: metadata_error({f"key{number}": "" for number in range(30_000)}), "must have at most 64 keys, got 30000"),
])  # fmt: skip
def test_too_long_text_is_refused_with_key_bound_and_length(error, expected):
    text = error()
    assert expected in text
    assert len(text) < 400


def test_too_long_brake_on_every_object_is_refused_in_one_line_each():
    """Without the bound, 1,019 blanks took two seconds per object on the event loop."""
    text = "freeze until " + "x " * 500 + "because"
    registry = Cluster(Config(kubernetes=Kubernetes())).take(
        *(deployment(f"chat-{number}", brake=text) for number in range(50))
    )
    errors = [str(error) for error in registry.object_errors]
    assert sum("tidegate.dev/brake: must be at most 512 characters long, and has 1020" in one for one in errors) == 50
