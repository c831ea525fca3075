"""An idle workload with sleep mode passes from ready to asleep to zero, with every proof of idleness."""

from dataclasses import replace

import pytest

from exporter.model import WorkloadKey
from scaler.engine.decider import Decider
from scaler.engine.engine_calls import Action
from scaler.engine.prepare import replaceable
from scaler.explain.document import DecisionExplainer
from scaler.model import Board
from scaler.policy.estimators.sleep_plan import SleepConfig

CHAT = WorkloadKey("ai", "chat")
IDLE_S, ASLEEP_S, INTERVAL_S = 300.0, 60.0, 5.0
SLEEP = SleepConfig(share=0.1, after=ASLEEP_S, earliest=15.0, timeout=30.0)


@pytest.fixture
def stage(scene, plan, pod, gateway):
    def make(sleep=SLEEP, **about):
        made = scene(plan(gateway=True, keep_warm=IDLE_S, about={"sleep": sleep}, **about))
        made.engines, made.front, made.down = [pod(0), pod(1)], gateway(), [False, False]
        made.has(pods=made.engines, gateway=made.front, wanted=2)
        return made

    return make


@pytest.fixture
def pages(page):
    """Responses of two engines, asleep by `stage.down`, and of the gateway. passed_on: requests in engines."""

    def make(stage, running=0, passed_on=0, finished=5, held=0):
        each = zip(stage.engines, stage.down, strict=True)
        engines = {e: page.vllm(waiting=0, running=running, finished=finished, awake=int(not d)) for e, d in each}
        return {**engines, stage.front: page.epp(held=held, ready=2, passed_on=passed_on)}

    return make


def tier(stage):
    return stage.decision().evidence.sleep_tier


def due(stage):
    return [(call.action, call.target) for call in stage.decider.sleep.calls()]


def to_sleep(stage, pages):
    """Idle until asleep, and its engines follow."""
    stage.rounds(ASLEEP_S + 10.0, pages(stage))
    stage.down = [True, True]
    stage.round(pages(stage))
    assert (tier(stage), due(stage)) == ("asleep", [])


def test_idle_engines_are_put_to_sleep_before_zero_and_keep_their_replica(stage, pages):
    idle = stage()
    idle.rounds(ASLEEP_S - 5.0, pages(idle))
    assert (tier(idle), due(idle)) == ("ready", [])
    assert idle.rounds(15.0, pages(idle))[-1] == (1, True, "warm")
    assert (tier(idle), due(idle)) == ("asleep", [(Action.SLEEP, engine) for engine in idle.engines])
    idle.down[0] = True
    idle.round(pages(idle))
    assert due(idle) == [(Action.SLEEP, idle.engines[1])]
    idle.down[1] = True
    assert idle.rounds(60.0, pages(idle))[-1] == (1, True, "warm")
    assert due(idle) == []
    assert idle.rounds(IDLE_S, pages(idle))[-1] == (0, False, "asleep")
    assert (tier(idle), due(idle)) == ("zero", [])


def test_request_that_waits_in_a_sleeping_engine_wakes_all_at_once(stage, page, pages):
    idle = stage()
    to_sleep(idle, pages)
    # The gateway has passed it on; the engine does not report it. No sweep comes between.
    idle.now += 1.0
    idle.land(idle.front, page.epp(held=0, ready=2, passed_on=1))
    assert due(idle) == [(Action.WAKE_UP, engine) for engine in idle.engines]
    idle.sweep()
    assert (tier(idle), idle.outcome()) == ("ready", (1, True, "loading"))
    assert idle.decision().evidence.held_by_gateway == 1
    idle.down = [False, False]
    assert idle.round(pages(idle, running=1, passed_on=1)) == (1, True, "serving")
    assert due(idle) == []


def test_request_in_the_one_engine_that_sleeps_wakes_it_while_the_other_works(stage, page, pages):
    idle = stage()
    idle.rounds(ASLEEP_S + 10.0, pages(idle))
    idle.down = [True, False]  # the other call failed
    idle.round(pages(idle))
    awake = page.vllm(waiting=0, running=1, finished=5, awake=1)
    # Both requests are open, and one of them runs.
    idle.round({**pages(idle, passed_on=2), idle.engines[1]: awake})
    assert (tier(idle), due(idle)) == ("ready", [(Action.WAKE_UP, idle.engines[0])])
    assert idle.decision().evidence.held_by_gateway == 1


def test_counter_that_rose_wakes_although_its_request_is_gone(stage, page, pages):
    idle = stage()
    to_sleep(idle, pages)
    idle.round({**pages(idle), idle.engines[0]: page.vllm(waiting=0, running=0, finished=6, awake=0)})
    assert [action for action, _ in due(idle)] == [Action.WAKE_UP] * 2


def test_woken_workload_is_kept_ready_as_long_as_after_a_request(stage, page, pages):
    idle = stage()
    to_sleep(idle, pages)
    idle.round({**pages(idle), idle.front: page.epp(held=0, ready=2, passed_on=1)})
    idle.down = [False, False]
    idle.rounds(ASLEEP_S - 5.0, pages(idle))
    assert (tier(idle), due(idle)) == ("ready", [])
    idle.rounds(15.0, pages(idle))
    assert tier(idle) == "asleep"


PROOFS = ["a request", "a moving counter", "a silent engine", "no wake source", "no open requests", "a loading replica"]


@pytest.mark.parametrize("proof", PROOFS)
def test_every_missing_proof_keeps_the_engines_ready(stage, page, pages, proof):
    idle = stage()
    for number in range(40):
        found = pages(idle, running=int(proof == "a request"))
        if proof == "a moving counter":
            found = pages(idle, finished=5 + number)
        elif proof == "a silent engine":
            found[idle.engines[1]] = None
        elif proof == "no wake source":
            found[idle.front] = page.epp(ready=2, passed_on=0)
        elif proof == "no open requests":
            found[idle.front] = page.epp(held=0, ready=2)
        elif proof == "a loading replica":
            idle.counted(2, ready=1)
        idle.round(found)
        assert idle.decision().evidence.sleep_tier == "ready"
        assert due(idle) == []


def test_silence_neither_wakes_nor_puts_to_sleep(stage, pages):
    idle = stage()
    to_sleep(idle, pages)
    for _ in range(40):
        idle.round(dict.fromkeys(pages(idle)))
        assert due(idle) == []
    assert tier(idle) == "asleep"
    # Idle again, from now on: that is no reason to wake.
    idle.rounds(20.0, pages(idle))
    assert (tier(idle), due(idle)) == ("asleep", [])


def test_engine_that_others_woke_is_left_awake_and_sleeps_later(stage, pages):
    idle = stage()
    to_sleep(idle, pages)
    idle.down = [False, True]
    idle.round(pages(idle))
    assert (tier(idle), due(idle)) == ("ready", [])
    idle.rounds(ASLEEP_S, pages(idle))
    assert (tier(idle), due(idle)) == ("asleep", [(Action.SLEEP, idle.engines[0])])


def test_engines_that_others_put_to_sleep_are_taken_as_asleep_and_woken_by_a_request(stage, page, pages):
    idle = stage()
    idle.down = [True, True]
    idle.rounds(30.0, pages(idle))
    assert (tier(idle), due(idle)) == ("asleep", [])
    idle.round({**pages(idle), idle.front: page.epp(held=0, ready=2, passed_on=2)})
    assert [action for action, _ in due(idle)] == [Action.WAKE_UP] * 2


def test_state_survives_a_restart(stage, page, pages):
    idle, again = stage(), stage()
    to_sleep(idle, pages)
    again.now, again.down = idle.now + 20.0, [True, True]
    again.decider.restore(idle.decider.state(idle.now), again.now)
    again.rounds(30.0, pages(again))
    assert (tier(again), due(again)) == ("asleep", [])
    again.round({**pages(again), again.front: page.epp(held=0, ready=2, passed_on=1)})
    assert [action for action, _ in due(again)] == [Action.WAKE_UP] * 2


def test_state_is_published_and_no_engine_is_called_without_leave(stage, page, pages):
    idle = stage(SLEEP._replace(timeout=None))
    idle.rounds(ASLEEP_S + 10.0, pages(idle))
    assert (tier(idle), due(idle)) == ("asleep", [])
    # Another controller puts them to sleep and wakes them: the time between is learned.
    idle.down = [True, True]
    idle.round(pages(idle))
    idle.round({**pages(idle), idle.front: page.epp(held=0, ready=2, passed_on=1)})
    idle.down = [False, False]
    idle.now += 2.0
    idle.land_together(pages(idle, running=1, passed_on=1))
    idle.sweep()
    evidence = idle.decision().evidence
    assert (evidence.sleep_tier, evidence.wake_s) == ("ready", 2.0)


def test_what_another_controller_has_to_do_is_said(stage, page, pages):
    idle = stage(SLEEP._replace(timeout=None))

    def sleep_task():
        return idle.decision().evidence.sleep.rpartition("; ")[2]

    idle.rounds(ASLEEP_S - 5.0, pages(idle))
    assert sleep_task() == "another controller calls its engines"
    idle.rounds(15.0, pages(idle))
    assert sleep_task() == "another controller is to put its engines to sleep, and has not yet: calls is off"
    idle.down = [True, True]
    idle.round(pages(idle))
    assert sleep_task() == "another controller calls its engines"
    idle.round({**pages(idle), idle.front: page.epp(held=0, ready=2, passed_on=1)})
    assert sleep_task() == "requests wait until another controller wakes its engines: calls is off"


RELOADS = ["replaced in place", "another list"]


@pytest.mark.parametrize("reload", RELOADS)
@pytest.mark.parametrize("sleep", [None, SLEEP._replace(timeout=None)], ids=["no sleep mode", "no calls"])
def test_engines_that_calls_put_to_sleep_are_woken_after_a_reload_without_leave(stage, pages, reload, sleep):
    idle = stage()
    to_sleep(idle, pages)
    plans = [replace(idle.decider.plans[0], sleep=sleep)]
    if reload == "replaced in place":
        rows = replaceable(idle.decider.plans, plans)
        idle.decider.replan(plans, rows, idle.decider.of_plans(rows, plans))
    else:
        other = Decider(plans, interval_s=INTERVAL_S, fresh_intervals=3.0, log_bytes=2**22)
        other.take_over(idle.decider)
        idle.decider = other
    idle.round(pages(idle))
    assert due(idle) == [(Action.WAKE_UP, engine) for engine in idle.engines]
    idle.down = [False, True]
    idle.round(pages(idle))
    assert due(idle) == [(Action.WAKE_UP, idle.engines[1])]
    idle.down = [False, False]
    idle.round(pages(idle))
    assert due(idle) == []


@pytest.mark.parametrize("sleep", [None, SLEEP])
def test_engine_asleep_without_sleep_mode_is_said_to_stay_so(stage, pages, sleep):
    idle = stage(sleep=sleep)
    idle.down = [True, False]
    idle.round(pages(idle))
    (note,) = [note for note in idle.decision().evidence.notes if "in vLLM's sleep mode" in note]
    assert ("; without sleep_mode Tidegate wakes only those that it put to sleep" in note) is (sleep is None)


def test_result_of_a_call_is_learned_or_told(stage, pages):
    idle = stage()
    to_sleep(idle, pages)
    workload = idle.decision().workload
    for took_s in (0.3, 0.3, 2.1):
        idle.decider.sleep.called(workload, Action.WAKE_UP, took_s, None)
    idle.decider.sleep.called(workload, Action.SLEEP, 1.0, "POST /sleep of chat-0 failed: HTTP 404 Not Found")
    idle.round(pages(idle))
    evidence = idle.decision().evidence
    assert evidence.wake_s == 0.3
    assert evidence.sleep.endswith("a wake takes 0.3 s; POST /sleep of chat-0 failed: HTTP 404 Not Found")


def test_state_and_its_cost_are_explained(stage, pages):
    idle = stage(SLEEP._replace(after=None))
    idle.rounds(100.0, pages(idle))
    board = Board(1, idle.now, idle.decisions)
    document = DecisionExplainer(idle.decider).explain(CHAT, board, idle.now, None, None, None)()
    (step,) = [each for each in document["chain"] if each["step"] == "overrides"]
    (sentence,) = [each for each in step["sentences"] if "sleep mode" in each]
    assert sentence == (
        "Its sleep mode is at asleep: its engines sleep after 1m12s idle, at 10% of the price; no wake is measured yet."
    )
    assert document["row"]["why"].endswith("its engines sleep")


def test_sleep_never_pays_where_a_replica_keeps_its_gpu(stage, pages):
    idle = stage(SLEEP._replace(after=None, share=1.0))
    idle.rounds(IDLE_S - 20.0, pages(idle))
    assert (tier(idle), idle.decision().evidence.sleep_after_s) == ("ready", None)
    assert idle.rounds(60.0, pages(idle))[-1] == (0, False, "asleep")


def test_cheap_sleep_comes_as_soon_as_idleness_is_proven(stage, pages):
    idle = stage(SLEEP._replace(after=None))
    idle.rounds(100.0, pages(idle))
    assert tier(idle) == "asleep"
    assert 15.0 <= idle.decision().evidence.sleep_after_s <= 90.0


def test_workload_without_sleep_mode_has_no_state(stage, pages):
    idle = stage(sleep=None)
    idle.down = [True, True]
    idle.rounds(100.0, pages(idle))
    evidence = idle.decision().evidence
    assert (evidence.sleep_tier, evidence.sleep, due(idle)) == (None, None, [])
