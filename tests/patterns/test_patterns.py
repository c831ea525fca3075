"""Every regular expression of ours takes linear time, so that no text of a tenant's can stop the daemon."""

import time

import pytest

from scaler.config import Config, Kubernetes
from scaler.config.errors import TriggerErrors
from scaler.policy.overrides import OverrideError, read_brake
from scaler.workloads.triggers import read_metadata
from tests.patterns.ambiguity import SCANS, Automaton, trouble
from tests.patterns.found import METHODS, applied
from tests.scaler.workloads.objects import Cluster, deployment

APPLIED = applied()

# What cannot be shown from the pattern alone, and why it is linear all the same.
EXCEPT = {
    ("exporter/textformat/parser.py", "_PAIRS"): "it is applied only to what _COMMON has matched",
}


def file_and_name(one):
    return one.place.partition(":")[0], one.name


def ways(one):
    """One method of each kind: what a pattern costs depends on where it may begin and whether it must reach the end."""
    scans = one.methods & SCANS
    return ["search"] * bool(scans) + sorted((one.methods if one.methods != METHODS else {"fullmatch"}) - scans)


@pytest.mark.parametrize("one", APPLIED, ids=str)
def test_every_pattern_takes_linear_time(one):
    if file_and_name(one) not in EXCEPT:
        found = {method: trouble(one.pattern, one.flags, method) for method in ways(one)}
        assert set(found.values()) <= {None}, f"{one}: {one.pattern!r}: {found}"


def test_every_exception_is_needed():
    for key in EXCEPT:
        of_it = [one for one in APPLIED if file_and_name(one) == key]
        assert any(trouble(one.pattern, one.flags, method) for one in of_it for method in ways(one)), key


def spent_s(matching, text):
    begin = time.process_time()
    matching(text)
    return time.process_time() - begin


@pytest.mark.parametrize("one", APPLIED, ids=str)
def test_an_eight_times_longer_text_never_takes_sixty_times_as_long(one):
    """Eight times if it is linear, 64 if it is quadratic. Texts repeat one or two characters that the pattern reads."""
    if file_and_name(one) in EXCEPT:
        return
    letters = Automaton(one.pattern, one.flags).letters[:12]
    bad = b"\x00" if isinstance(one.pattern, bytes) else "\x00"
    for method in ways(one):
        matching = getattr(one.compiled, "findall" if method == "search" else method)
        for first in letters:
            for second in letters:
                short, long = ((first + second) * count + bad for count in (128, 1024))
                # The smallest of several: whatever else the machine does can only add to it.
                ratios = (spent_s(matching, long) / max(spent_s(matching, short), 1e-3) for _ in range(5))
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
def test_a_pattern_that_can_take_longer_is_found(pattern, method):
    assert trouble(pattern, method=method)


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
def test_a_pattern_that_is_linear_is_not_refused(pattern, method):
    assert trouble(pattern, method=method) is None


LONG = 300_000


def unread(words):
    with pytest.raises(TriggerErrors) as caught:
        read_metadata(words, "metadata")
    return str(caught.value)


def braked(text):
    with pytest.raises(OverrideError) as caught:
        read_brake(text)
    return str(caught.value)


@pytest.mark.parametrize(("error", "said"), [
    (lambda: braked("freeze until " + " " * LONG), "must be at most 512 characters long, and has 300013"),
    (lambda: unread({"engine": "v" * LONG}), "metadata: must have values of at most 1024 characters"),
    (lambda: unread({"schedules": "0 " * LONG}), "for schedules"),
    (lambda: unread({"e" * LONG: "vllm"}), "metadata: must have keys of at most 1024 characters"),
    (lambda: unread({f"key{number}": "" for number in range(LONG // 10)}), "must have at most 64 keys, got 30000"),
])  # fmt: skip
def test_a_text_that_is_too_long_is_refused_with_key_bound_and_length(error, said):
    text = error()
    assert said in text
    assert len(text) < 400


def test_a_long_brake_on_every_object_of_the_cluster_is_refused_in_one_line_each():
    """1,019 characters of blanks took two seconds each on the event loop."""
    text = "freeze until " + "x " * 500 + "because"
    census = Cluster(Config(kubernetes=Kubernetes())).take(
        *(deployment(f"chat-{number}", brake=text) for number in range(50))
    )
    errors = [str(error) for error in census.object_errors]
    assert sum("tidegate.dev/brake: must be at most 512 characters long, and has 1020" in one for one in errors) == 50
