"""vLLM's sleep mode: a sleeping engine holds memory and serves no request; it is not idle capacity."""

import pytest

IDLE_S = 30.0


@pytest.fixture
def stage(scene, plan, pod, gateway):
    stage = scene(plan(gateway=True, keep_warm=IDLE_S, kv=0.5))
    stage.engines, stage.front = [pod(0), pod(1)], gateway()
    stage.has(pods=stage.engines, gateway=stage.front, wanted=2)
    return stage


def pages(stage, page, awake=(1, 1), work=(0, 0), kv=(0.0, 0.0), held=0):
    each = zip(stage.engines, awake, work, kv, strict=True)
    engines = {engine: page.vllm(waiting=0, running=runs, kv=use, awake=state) for engine, state, runs, use in each}
    return {**engines, stage.front: page.epp(held=held, ready=2)}


def test_sleeping_engine_is_counted_and_noted(stage, page):
    stage.round(pages(stage, page, awake=(1, 0)))
    evidence = stage.decision().evidence
    assert (evidence.replicas_ready, evidence.replicas_sleeping) == (2, 1)
    assert evidence.notes == (
        (
            "1 of its engines in vLLM's sleep mode: until woken, a pod keeps its GPU and serves no request; "
            "without sleep_mode Tidegate wakes only those that it put to sleep"
        ),
    )
    stage.round(pages(stage, page))
    assert (stage.decision().evidence.replicas_sleeping, stage.decision().evidence.notes) == (0, ())


def test_engine_without_a_sleep_state_is_not_known_to_be_awake(stage, page):
    stage.round(pages(stage, page, awake=(None, None)))
    assert stage.decision().evidence.replicas_sleeping is None


def test_mean_covers_only_engines_that_are_awake(stage, page):
    # One is awake, 80 % full: 1 x 0.8 / 0.5 = 1.6, so 2. Over both it would be 2 x 0.4 / 0.5 as well, but a sleeping
    # engine whose cache was full when it fell asleep would make it 3.
    assert stage.round(pages(stage, page, awake=(1, 0), work=(1, 0), kv=(0.8, 0.9))) == (2, True, "serving")
    assert stage.decision().evidence.kv_cache_used == 0.8
    assert stage.round(pages(stage, page, awake=(1, 1), work=(1, 1), kv=(0.8, 0.9))) == (4, True, "serving")


def test_engines_that_all_sleep_are_loading_under_demand(stage, page):
    assert stage.round(pages(stage, page, awake=(0, 0), held=3)) == (1, True, "loading")
    assert stage.decision().evidence.replicas_ready == 0
    assert stage.round(pages(stage, page, awake=(1, 0), held=3)) == (1, True, "queued")


def test_sleeping_engines_fall_asleep_without_work(stage, page):
    assert stage.rounds(IDLE_S + 10, pages(stage, page, awake=(0, 0)))[-1] == (0, False, "asleep")


def test_gpu_activity_covers_only_engines_that_are_awake(scene, plan, pod, node, page):
    stage = scene(plan(work=None, gpu=0.5))
    stage.engines, stage.node = [pod(0), pod(1)], node()
    stage.has(pods=stage.engines, wanted=2)
    names = ["chat-7d9f8b6c5d-x2k9q", "chat-7d9f8b6c5d-z4b7m"]

    def at(awake):
        gpus = page.gpu("GPU-0", [names[0]], engine=0.6) + page.gpu("GPU-1", [names[1]], engine=0.0)
        engines = zip(stage.engines, (1, awake), (1, 0), strict=True)
        return {
            **{engine: page.vllm(waiting=0, running=runs, awake=state) for engine, state, runs in engines},
            stage.node: gpus,
        }

    # 0.6 over two is 0.3 of each: 2 x 0.3 / 0.5 = 1.2 replicas; over the one that is awake it is 0.6: 1.2 as well.
    assert stage.round(at(awake=1))[0] == 2
    assert stage.decision().evidence.gpu_engine_active == pytest.approx(0.3)
    assert stage.round(at(awake=0))[0] == 2
    assert stage.decision().evidence.gpu_engine_active == pytest.approx(0.6)
