"""Reads a server from a YAML file."""

import textwrap

import numpy as np
import pytest

from scaler.config import ConfigErrors
from scaler.replay.servers import PROFILES, A, load_profile, parse_profile

MINE = """\
name: mistral-7b-l40s
start: 40s
engine: {step: 16ms, per_sequence: 0.12ms, per_token: 1.1e-7, prompt_rate: 7000, kv_tokens: 190000}
slo: {first: 2s, per_prompt_token: 0.3ms, rest: 500ms, per_output_token: 80ms}
"""


def problems(text):
    with pytest.raises(ConfigErrors) as error:
        parse_profile(textwrap.dedent(text), "s.yaml")
    return [str(problem) for problem in error.value.problems]


def test_server_file_sets_given_values_and_the_rest_has_defaults(write):
    profile, _ = load_profile(write("s.yaml", MINE))
    assert (profile.name, profile.start_s, profile.start_sigma, profile.gpus) == ("mistral-7b-l40s", 40.0, 0.0, 1)
    assert profile.server._asdict() == {
        "step": 0.016, "per_sequence": 0.00012, "per_token": 1.1e-7, "prompt_rate": 7000.0,
        "chunk": 2048, "batch": 256, "kv_tokens": 190_000.0, "slots": 0,
    }  # fmt: skip
    first, rest = np.array([2.2, 2.4, 2.2]), np.array([8.0, 8.0, 9.0])
    prompt, output = np.full(3, 1000), np.full(3, 100)
    # 2 + 1000*0.0003 = 2.3 s, and 0.5 + 100*0.08 = 8.5 s.
    assert profile.slo.kept(first, rest, prompt, output).tolist() == [True, False, False]


def test_built_in_server_can_be_written_as_a_file():
    text = """\
        name: A again
        start: 75s
        engine: {step: 11.5ms, per_sequence: 0.1ms, per_token: 6.5e-8, prompt_rate: 12000, kv_tokens: 412000}
        slo: {first: 2s, per_prompt_token: 0.00016666666666666666, rest: 500ms, per_output_token: 60ms}
    """
    again, _ = parse_profile(textwrap.dedent(text), "a.yaml")
    assert again.server == A.server
    assert (again.slo, again.start_s, again.gpus) == (A.slo, A.start_s, A.gpus)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_built_in_name_needs_no_file(name):
    assert load_profile(name) == (PROFILES[name], [])


def test_slo_without_rest_has_no_bound_for_it():
    text = MINE.replace(", rest: 500ms, per_output_token: 80ms", "")
    assert parse_profile(text, "s.yaml")[0].slo.rest_s == float("inf")


def test_all_errors_are_reported_at_once_with_their_position():
    text = """\
        name: mine
        start: quick
        engine: {step: 16ms, per_seq: 0.12ms, prompt_rate: -7}
        slo: {first: 2s, share: 1}
    """
    assert problems(text) == [
        "s.yaml:2:8: start: must be a duration such as 500ms, 5s, 2m or 1h30m, got quick",
        "s.yaml:3:9: engine.kv_tokens: must be given",
        "s.yaml:3:22: engine.per_seq: unknown key; did you mean per_sequence?",
        "s.yaml:3:52: engine.prompt_rate: must be above 0, got -7",
        "s.yaml:4:25: slo.share: must be below 1, got 1",
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: mistral-7b-l40s", "name: B", "s.yaml:1:7: name: must be another name than those built in (A, B, C)"),
        ("kv_tokens: 190000", "kv_tokens: 190000, chunk: 64", "engine.chunk: must be at least batch (256)"),
        ("per_output_token: 80ms", "per_output_token: 16ms", "must be at least step + per_sequence (16.12 ms)"),
        ("slo:", "gpus: 0\nslo:", "s.yaml:4:7: gpus: must be at least 1, got 0"),
    ],
)
def test_contradicting_values_are_refused(old, new, expected):
    assert expected in problems(MINE.replace(old, new))[0]


def test_slo_that_long_prompts_cannot_meet_is_a_warning():
    text = MINE.replace("per_prompt_token: 0.3ms", "per_prompt_token: 0.1ms")
    profile, (warning,) = parse_profile(text, "s.yaml")

    assert profile.slo.first_per_prompt_s == pytest.approx(1e-4)
    assert str(warning).startswith("s.yaml:4:")
    assert "prompts that are long enough cannot meet the SLO" in str(warning)


def test_missing_file_is_an_error_with_its_name(tmp_path):
    with pytest.raises(ConfigErrors, match="cannot be read: No such file or directory"):
        load_profile(str(tmp_path / "D.yaml"))
