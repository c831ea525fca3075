"""Generates loads from their textual form."""

import numpy as np
import pytest

from scaler.replay.traces import GENERATORS, load


@pytest.mark.parametrize("kind", sorted(GENERATORS))
def test_same_seed_yields_the_same_load(kind):
    one, two = (load(f"{kind}:for=6h", seed=3).load for _ in range(2))
    assert one.name == f"{kind}:for=6h"
    assert [column.tolist() for column in (one.at, one.prompt, one.output)] == [
        column.tolist() for column in (two.at, two.prompt, two.output)
    ]
    assert one.span_s <= 6 * 3600.0
    assert one.prompt.min() >= 1


def test_each_arrives_at_regular_times(rows):
    assert [at for at, _, _ in rows("each:7m,for=30m")] == [420.0, 840.0, 1260.0, 1680.0]
    assert rows("each:7m,for=30m") == rows("each:every=7m,for=30m") == rows("each:420,for=1800")


def test_batch_arrives_all_at_once():
    at = load("batch:jobs=3,every=10m,for=20m").load.at
    assert at.tolist() == [600.0] * 3 + [1200.0] * 3


def test_day_is_quiet_at_midnight_and_busy_at_noon():
    at = load("diurnal:low=1,high=5,for=10d").load.at
    hours = np.histogram(at % 86_400, bins=24)[0] / 36_000
    assert hours[[0, 23]] == pytest.approx([1.0, 1.0], abs=0.1)  # 1 + 4*(1 - cos(2*pi*0.5/24))/2 is 1.02
    assert hours[[11, 12]] == pytest.approx([5.0, 5.0], abs=0.15)
    assert len(at) / 864_000 == pytest.approx(3.0, rel=0.01)


def test_on_off_load_has_its_rate_or_none():
    at = load("onoff:rate=10,on=10m,off=30m,for=20d", seed=1).load.at
    minutes = np.histogram(at, bins=np.arange(0, 20 * 86_400 + 1, 60))[0]
    busy = minutes > 0
    assert busy.mean() == pytest.approx(0.25, abs=0.04)
    assert np.median(minutes[busy]) == pytest.approx(600, rel=0.05)


def test_flash_crowd_arrives_within_its_rise_and_halves_every_fall():
    at = load("flash:rate=10,peak=110,at=1000,rise=10s,fall=200s,for=2000").load.at
    rate = np.histogram(at, bins=[0, 1000, 1010, 1020, 1205, 1215])[0] / [1000, 10, 10, 185, 10]
    assert rate[0] == pytest.approx(10.0, rel=0.05)
    assert rate[2] == pytest.approx(108.0, rel=0.15)
    assert rate[4] == pytest.approx(60.0, rel=0.2)


def test_lengths_have_the_given_mean():
    generated = load("diurnal:prompt=800,output=150,for=1d").load
    assert generated.prompt.mean() == pytest.approx(800, rel=0.01)
    assert generated.output.mean() == pytest.approx(150, rel=0.01)
    assert load("each:7m,sigma=0,output=60").load.output.tolist() == [60] * 205


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "flesh",
            "flesh: is no file, and flesh none of the generators diurnal, onoff, flash, each, batch (did you mean",
        ),
        ("flash:peek=3", "got 'peek=3' (did you mean peak?)"),
        ("flash:peak=3,5", "got '5'"),
        ("flash:peak=", "got 'peak='"),
        ("flash:peak=x", "flash:peak=x: peak: must be a number, got 'x'"),
        ("each:7q", "each:7q: every: must be a duration such as 500ms, 5s, 2m or 1h30m, got '7q'"),
        ("each:7m,every=8m", "every: must be given once"),
        ("each:0s", "each: every: must be above 0, got 0"),
        ("diurnal:high=nan", "diurnal: high: must be above 0, got nan"),
        ("flash:" + "peak=3," * 999, "peak: must be given once"),
        ("each:2d,for=1d", "has no request in 86400 s"),
        ("onoff:rate=0", "has no request in 86400 s"),
        ("batch:jobs=1e9", "requests are more than a replay can hold"),
        ("diurnal:high=1e9", "requests are more than a replay can hold"),
    ],
)
def test_invalid_text_is_reported_with_the_valid_form(refusal, text, expected):
    assert expected in refusal(text)


def test_part_of_a_file_begins_at_its_own_second_zero(write, rows, refusal):
    path = write("a:b.csv", "".join(f"{second},{second},1\n" for second in range(10)))
    assert len(rows(path)) == 10
    assert rows(f"{path}:from=3s,to=5s") == [(0.0, 3, 1), (1.0, 4, 1)]
    assert rows(f"{path}:from=8") == [(0.0, 8, 1), (1.0, 9, 1)]
    assert "has no request in what was asked of it" in refusal(f"{path}:from=1h")
    assert "must be key=value of from, to, share, clients" in refusal(f"{path}:form=3s")


def test_share_of_a_file_keeps_each_request_by_chance(write, refusal):
    path = write("a.csv", "".join(f"{second},1,1\n" for second in range(20_000)))
    kept = load(f"{path}:share=1/8", seed=1).load
    assert len(kept.at) == pytest.approx(2500, rel=0.1)
    assert kept.at.tolist() == load(f"{path}:share=0.125", seed=1).load.at.tolist()
    for share in ("0", "2", "x", "1/0"):
        assert "share: must be above 0 and at most 1" in refusal(f"{path}:share={share}")
