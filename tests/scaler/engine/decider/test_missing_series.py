"""A missing series with requests in progress proves nothing after a restart, a reload or a change of leader."""

import pytest

from exporter.catalog import Reader
from exporter.textformat import Scanner
from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider

SLEEPY = {"keep_warm": 30.0, "gateway": True, "hold": 300.0}


def lines(*engines):
    """The response of data-parallel engines: `(waiting, running)` of each; None omits that line."""
    found = []
    for number, (waiting, running) in enumerate(engines):
        labels = f'{{model_name="m",engine="{number}"}}'
        values = {"num_requests_waiting": waiting, "num_requests_running": running, "generation_tokens_total": 100}
        found += [f"vllm:{name}{labels} {value}\n" for name, value in values.items() if value is not None]
    return "".join(found)


WHOLE, MISSING, IDLE = lines((0, 0), (30, 0)), lines((0, 0), (None, 0)), lines((0, 0), (0, 0))


def restarted(stage, plan):
    state = unpack(pack(stage.decider.state(stage.now)))
    after = Decider([plan], interval_s=5.0, fresh_intervals=3.0)
    after.restore(state, stage.now)
    return after


def reloaded(stage, plan):
    after = Decider([plan], interval_s=5.0, fresh_intervals=3.0)
    after.adopt(stage.decider)
    return after


def reloaded_twice(stage, plan):
    stage.decider = reloaded(stage, plan)
    return reloaded(stage, plan)


def leading_after_following(stage, plan):
    state = unpack(pack(stage.decider.share(None, stage.now)))
    after = Decider([plan], interval_s=5.0, fresh_intervals=3.0)
    after.follow_state(state, stage.now)
    return after


@pytest.mark.parametrize("change", [restarted, reloaded, reloaded_twice, leading_after_following])
def test_missing_series_with_work_proves_nothing_after_a_change(scene, plan, pod, gateway, page, change):
    sleepy, engine, front = plan(**SLEEPY), pod(), gateway()
    stage = scene(sleepy)
    stage.has(pods=[engine], gateway=front, wanted=2)
    empty = page.epp(held=0)
    assert stage.round({engine: WHOLE, front: empty}) == (2, True, "queued")
    assert stage.rounds(100, {engine: MISSING, front: empty})[-1] == (2, True, "incomplete")
    stage.decider, stage.decisions, stage._readers = change(stage, sleepy), {}, {}
    for target in (engine, front):
        reader = Reader(target.kind)
        reader.restore(stage.decider.latest.open_gaps.begin(target))
        stage._readers[target] = reader, Scanner()
    stage.has(pods=[engine], gateway=front, wanted=2)
    assert stage.rounds(500, {engine: MISSING, front: empty})[-1] == (2, True, "incomplete")
    (found,) = stage.decision().evidence.incomplete
    assert "is missing for 600 s" in found
    assert stage.rounds(100, {engine: IDLE, front: empty})[-1][:2] == (0, False)


def test_scraping_follower_adopts_missing_series_of_the_leader(scene, plan, pod, gateway, page):
    leader, engine = scene(plan(**SLEEPY)), pod()
    leader.has(pods=[engine], wanted=2)
    leader.round({engine: WHOLE})
    leader.round({engine: MISSING})
    follower = scene(plan(**SLEEPY))
    follower.now = leader.now
    follower.has(pods=[engine], wanted=2)
    assert follower.decider.latest.open_gaps.begin(engine) == []
    follower.round({engine: MISSING})
    follower.decider.follow_state(unpack(pack(leader.decider.share(None, follower.now))), follower.now)
    for target, missing in follower.decider.latest.open_gaps.take_due():
        follower._readers[target][0].restore(missing)
    follower.round({engine: MISSING})
    assert len(follower.decision().evidence.incomplete) == 1


def test_checkpoint_without_missing_series_is_read(scene, plan, pod):
    stage, engine = scene(), pod()
    stage.has(pods=[engine])
    stage.round({engine: WHOLE})
    stage.round({engine: MISSING})
    state = stage.decider.state(stage.now)
    assert "missing" in state.tables
    del state.tables["missing"]
    after = Decider([plan()], interval_s=5.0, fresh_intervals=3.0)
    after.restore(unpack(pack(state)), stage.now)
    assert after.latest.open_gaps.begin(engine) == []
