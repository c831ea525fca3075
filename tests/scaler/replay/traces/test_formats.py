"""Reads the files of Mooncake, ServeGen and NumPy."""

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.replay.traces import FORMATS, load
from scaler.replay.traces.servegen import Lengths, Window, arrivals, draw


def mooncake(*rows):
    keys = ("timestamp", "input_length", "output_length")
    return "".join(json.dumps({**dict(zip(keys, row, strict=True)), "hash_ids": [0, 1]}) + "\n" for row in rows)


def test_requests_on_the_grid_of_mooncake_are_spread_within_their_step(write, rows):
    # As published: every 3 s, some timestamps a few milliseconds off.
    path = write(
        "m.jsonl", mooncake(*((3000 * step + step % 2, 10 + step, 1) for step in range(100) for _ in range(20)))
    )
    found = np.array(rows(path, seed=1))
    assert len(np.unique(found[:, 0])) == 2000
    assert (found[:, 1] == 10 + found[:, 0] // 3).all()
    assert 1.4 < np.mean(found[:, 0] % 3.0) < 1.6
    assert load(path).notes == (f"{path}: its stamps are on a grid of 3 s: requests were spread within it",)


def test_same_seed_yields_the_same_load_and_another_seed_another(write, rows):
    path = write("m.jsonl", mooncake((0, 1, 1), (3000, 2, 1), (6000, 3, 1)))
    assert rows(path, seed=1) == rows(path, seed=1)
    assert rows(path, seed=1) != rows(path, seed=2)


def test_timestamps_finer_than_a_second_are_not_changed(write, rows):
    assert rows(write("m", mooncake((0, 6, 5), (27, 7, 5), (4011, 8, 5)))) == [(0, 6, 5), (0.027, 7, 5), (4.011, 8, 5)]


def test_invalid_mooncake_line_is_skipped(write, rows):
    path = write("m.jsonl", mooncake((0, 6, 5)) + '{"timestamp": 5}\nno json\n[1]\n' + mooncake((10, 7, 5)))
    assert rows(path) == [(0.0, 6, 5), (0.01, 7, 5)]
    assert load(path).notes[0].startswith(f"3 bad rows left out, the first {path}:2: must have timestamp, ")


def client(folder, number, windows, dataset=None):
    lengths = {"input_tokens": "{5: 0.5, 9: 0.5}", "output_tokens": "{3: 1.0}"}
    (folder / f"chunk-{number}-trace.csv").write_text("\n".join(windows) + "\n")
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps({"0": lengths} if dataset is None else dataset))
    return str(folder / f"chunk-{number}-trace.csv")


def test_servegen_window_has_exactly_the_measured_requests(tmp_path, rows):
    windows = ["0,0,0,,0,0", "600,0.1,1.2,Gamma,0.7,14.2", "1200,0.2,8.6,Weibull,0.37,0.4", "1800,0.005,0,,0,0"]
    found = np.array(rows(client(tmp_path, 3, windows)))
    assert np.histogram(found[:, 0], bins=[0, 600, 1200, 1800, 2400])[0].tolist() == [0, 60, 120, 3]
    assert set(found[:, 1]) == {5, 9}
    assert set(found[:, 2]) == {3}


def test_lengths_are_those_of_the_current_section(tmp_path, rows):
    of = lambda tokens: {"input_tokens": f"{{{tokens}: 1.0}}", "output_tokens": "{1: 1.0}"}  # noqa: E731
    empty = {"input_tokens": "{}", "output_tokens": "{}"}
    dataset = {"0": of(10), "1200": of(20), "1800": empty}
    windows = [f"{second},0.01,1,Gamma,1,100" for second in (0, 600, 1200, 1800)]
    found = rows(client(tmp_path, 3, windows, dataset))
    assert [prompt for _, prompt, _ in found] == [10] * 12 + [20] * 12


def test_servegen_folder_contains_all_its_clients_and_another_one_changes_none(tmp_path, rows):
    windows = ["0,0.05,1,Gamma,1,20", "600,0.05,1,Gamma,1,20"]
    one = rows(client(tmp_path, 1, windows), seed=7)
    client(tmp_path, 12, windows)
    both = rows(str(tmp_path), seed=7)
    assert len(both) == 120
    assert set(one) < set(both)
    assert rows(f"{tmp_path}:clients=1", seed=7) == one
    assert rows(f"{tmp_path}:clients=1+12", seed=7) == both


def test_part_of_a_client_equals_that_part_of_the_whole(tmp_path, rows):
    client(tmp_path, 1, [f"{600 * index},0.05,1,Gamma,1,20" for index in range(6)])
    whole = rows(f"{tmp_path}:clients=1")
    part = rows(f"{tmp_path}:clients=1,from=15m,to=40m")
    assert part == [(round(at - 900.0, 6), *tokens) for at, *tokens in whole if 900.0 <= at < 2400.0]


def test_missing_or_invalid_dataset_is_named(tmp_path, refusal):
    path = client(tmp_path, 1, ["0,0.05,1,Gamma,1,20"], {"0": {"text_tokens": "{1: 1.0}"}})
    assert "chunk-1-dataset.json: must be ServeGen's" in refusal(path)
    assert "is one half of a client of ServeGen: give its chunk-1-trace.csv" in refusal(
        path.replace("trace.csv", "dataset.json")
    )
    (tmp_path / "chunk-1-dataset.json").unlink()
    assert "chunk-1-dataset.json: cannot be read: No such file or directory" in refusal(path)
    assert "chunk-9-trace.csv: cannot be read" in refusal(f"{tmp_path}:clients=9")


@given(st.sampled_from(["Gamma", "Weibull", ""]), st.floats(1e-3, 20.0), st.integers(0, 500), st.integers(0, 9))
def test_arrivals_stay_in_their_window_in_order(pattern, shape, count, seed):
    window = Window(600.0, 1200.0, count / 600.0, pattern, shape)
    at = arrivals(window, np.random.default_rng(seed))
    assert len(at) == count
    assert (np.diff(at) >= 0.0).all()
    assert ((at >= 600.0) & (at <= 1200.0)).all()


def test_drawn_lengths_have_their_distribution():
    drawn = draw(Lengths(np.array([5.0, 9.0]), np.array([0.25, 1.0])), 100_000, np.random.default_rng(0))
    assert 0.245 < (drawn == 5.0).mean() < 0.255
    assert set(drawn) == {5.0, 9.0}


def npz(**arrays):
    body = io.BytesIO()
    np.savez(body, **arrays)
    return body.getvalue()


def test_npz_has_gaps_in_milliseconds_from_the_beginning(write, rows):
    small = {"dt_ms": np.array([500, 250], dtype=np.uint32), "inp": np.array([100, 20]), "out": np.array([7, 300])}
    assert rows(write("a", npz(**small))) == [(0.5, 100, 7), (0.75, 20, 300)]


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"dt_ms": [1]}, "must have the arrays dt_ms, inp, out"),
        ({"dt_ms": [1, 2], "inp": [1], "out": [1]}, "must be of one length, got [(2,), (1,), (1,)]"),
        ({"dt_ms": [1.0, -2.0], "inp": [1, 1], "out": [1, 1]}, "request 1: must be numbers from 0"),
        ({"dt_ms": np.array([None]), "inp": [1], "out": [1]}, "is no npz of numbers"),
    ],
)
def test_invalid_npz_is_reported_with_its_error(write, refusal, arrays, expected):
    assert expected in refusal(write("a.npz", npz(**arrays)))


def test_given_format_is_not_guessed(write, refusal):
    path = write("a.csv", "1,2,3\n")
    assert len(load(path, "csv").load.at) == 1
    for form in set(FORMATS) - {"csv"}:
        assert "a.csv" in refusal(path, form=form)
    assert "format must be one of csv, mooncake, servegen, npz, got xml" in refusal(path, form="xml")
