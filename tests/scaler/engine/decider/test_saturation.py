"""The decider keeps what engines do on each GPU and MIG slice while requests wait, and the memory that they expose."""

import numpy as np
import pytest

from exporter.model import EngineMemory, PodKey, Role, Target, WorkloadKey
from scaler.engine.checkpoint_format import pack, unpack
from scaler.signals.saturation import HALF_LIFE_S, KEPT_S, KINDS, EngineDevice

A100 = "NVIDIA A100-SXM4-40GB"
WHOLE, HALF, SMALL = EngineDevice(A100, ""), EngineDevice(A100, "3g.20gb"), EngineDevice(A100, "1g.5gb")


def engine(number=0):
    target = f"http://10.0.0.{number}:8000/metrics", "vllm", Role.PODS, WorkloadKey("ai", "chat")
    return Target(*target, pod=PodKey("ai", f"chat-{number}"))


def vllm(tokens, *, waiting=4, requests=None, cache=""):
    requests = tokens / 200 if requests is None else requests
    return (
        f'vllm:num_requests_running{{model_name="m"}} 8\nvllm:num_requests_waiting{{model_name="m"}} {waiting}\n'
        f'vllm:request_success_total{{model_name="m"}} {requests}\n'
        f'vllm:prompt_tokens_total{{model_name="m"}} {2 * tokens}\n'
        f'vllm:generation_tokens_total{{model_name="m"}} {tokens}\n{cache}'
    )


def cache(blocks, ratio=0.9):
    return f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}",gpu_memory_utilization="{ratio}"}} 1\n'


def gpu(kind, pod="chat-0"):
    mig = f',GPU_I_ID="3",GPU_I_PROFILE="{kind.profile}"' if kind.profile else ""
    return f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID="G-{pod}",modelName="{A100}",namespace="ai",pod="{pod}"{mig}}} 0.9\n'


@pytest.fixture
def stage(scene, plan, node):
    stage = scene(plan(), plan("other"))
    stage.engine, stage.node = engine(), node()
    stage.has(pods=[stage.engine], wanted=1)
    return stage


def run(stage, kind, seconds, rate, **more):
    """The engine generates `rate` tokens per second on this kind; counters begin anew, as in a new pod."""
    for second in range(0, seconds + 1, 5):
        stage.round({stage.node: gpu(kind), stage.engine: vllm(second * rate, **more)})


def found(decider, now, row=0):
    return {each.kind: each for each in decider.latest.saturation.of(row, now)}


def test_work_at_saturation_is_added_up_for_each_slice(stage):
    run(stage, WHOLE, 600, 2000)
    run(stage, HALF, 600, 1300)
    sums = found(stage.decider, stage.now)
    assert set(sums) == {WHOLE, HALF}
    assert [sums[kind].seconds for kind in (WHOLE, HALF)] == pytest.approx([600.0, 600.0], rel=0.001)
    assert {kind: each.generated / each.seconds for kind, each in sums.items()} == pytest.approx(
        {WHOLE: 2000.0, HALF: 1300.0}
    )
    assert sums[HALF].prompt / sums[HALF].generated == pytest.approx(2.0)
    assert found(stage.decider, stage.now, row=1) == {}


@pytest.mark.parametrize("more", [{"waiting": 0}, {"waiting": "NaN"}], ids=["none waits", "unknown"])
def test_engine_without_known_waiting_requests_adds_nothing(stage, more):
    run(stage, WHOLE, 60, 2000, **more)
    assert found(stage.decider, stage.now) == {}


def test_engine_whose_pod_holds_two_gpus_adds_nothing(stage, node):
    both = gpu(WHOLE) + gpu(WHOLE).replace("G-chat-0", "G-2")
    for second in range(0, 60, 5):
        stage.round({stage.node: both, stage.engine: vllm(second * 100)})
    assert found(stage.decider, stage.now) == {}


def test_time_in_which_the_gpu_changed_belongs_to_no_kind(stage):
    for tokens, kind in ((0, WHOLE), (5_000, HALF), (10_000, WHOLE)):
        stage.round({stage.node: gpu(kind), stage.engine: vllm(tokens)})
    assert found(stage.decider, stage.now) == {}


def test_gpu_that_its_exporter_no_longer_shows_counts_for_five_minutes(stage):
    stage.round({stage.node: gpu(WHOLE), stage.engine: vllm(0)})
    for second in range(5, 605, 5):
        stage.round({stage.engine: vllm(second * 100)})
    assert found(stage.decider, stage.now)[WHOLE].seconds == pytest.approx(300.0, rel=0.001)


def test_gpu_of_another_pod_is_not_the_engines(stage):
    stage.second = engine(1)
    stage.has(pods=[stage.engine, stage.second], wanted=2)
    for second in range(0, 60, 5):
        text = vllm(second * 100)
        stage.round({stage.node: gpu(HALF, "chat-1"), stage.engine: text, stage.second: text})
    (sums,) = found(stage.decider, stage.now).values()
    assert (sums.kind, sums.seconds) == (HALF, pytest.approx(55.0, rel=0.001)), "one of two engines"


def test_restarted_engine_and_a_long_gap_add_nothing(stage):
    """The new process has finished more requests than the old one, and generated fewer tokens."""
    stage.round({stage.node: gpu(WHOLE), stage.engine: vllm(10_000, requests=1)})
    stage.round({stage.node: gpu(WHOLE), stage.engine: vllm(500, requests=2)})
    stage.round({stage.node: gpu(WHOLE), stage.engine: vllm(90_000)}, after=301.0)
    assert found(stage.decider, stage.now) == {}


def test_old_kinds_keep_their_ratio_and_end_after_a_month(stage):
    run(stage, WHOLE, 600, 2000)
    before = found(stage.decider, stage.now)[WHOLE]
    stage.now += HALF_LIFE_S
    assert found(stage.decider, stage.now)[WHOLE] == before, "it ran nowhere in between"
    stage.round({stage.node: gpu(WHOLE), stage.engine: vllm(0)})
    stage.round({stage.node: gpu(WHOLE), stage.engine: vllm(5000)})
    assert found(stage.decider, stage.now)[WHOLE].seconds == pytest.approx(305.0, rel=0.01)
    assert found(stage.decider, stage.now + KEPT_S + 1.0) == {}


def test_number_of_kinds_is_bounded_and_the_newest_stay(stage):
    for number in range(KINDS + 2):
        run(stage, EngineDevice(A100, f"{number}g.5gb"), 10, 100)
    kinds = [f"{number}g.5gb" for number in range(2, KINDS + 2)]
    assert [kind.profile for kind in found(stage.decider, stage.now)] == kinds


def test_sums_and_memory_survive_a_restart_and_reach_a_follower(stage, scene, plan):
    run(stage, WHOLE, 600, 2000, cache=cache(1000))
    state = unpack(pack(stage.decider.state(stage.now)))
    later, follower = scene(plan()), scene(plan())
    later.decider.restore(state, stage.now + 5.0)
    follower.decider.follow_state(stage.decider.share(None, stage.now), stage.now)
    for each in (later, follower):
        assert found(each.decider, stage.now) == found(stage.decider, stage.now)
        assert each.decider.latest.engine_memories.of(0) == EngineMemory(16_000, 0.9)


def test_impossible_restored_values_are_unknown(stage):
    run(stage, WHOLE, 600, 2000, cache=cache(1000))
    columns = {name: column.copy() for name, column in stage.decider.columns().items()}
    columns["saturation.sums"][0, 0, 3] = -1.0
    columns["engine_memory.values"][0] = [-5.0, 7.0]
    stage.decider.take(columns, np.array([0]), np.array([0]), stage.now)
    assert found(stage.decider, stage.now) == {}
    assert stage.decider.latest.engine_memories.of(0) is None


def test_smallest_cache_counts_and_the_last_one_is_remembered(stage):
    second = engine(1)
    stage.has(pods=[stage.engine, second], wanted=2)
    memory = stage.decider.latest.engine_memories
    stage.round({stage.engine: vllm(0, cache=cache(1000)), second: vllm(0, cache=cache(500, 0.8))})
    assert memory.of(0) == EngineMemory(8_000, 0.8)
    stage.decider.retire(second)
    assert memory.of(0) == EngineMemory(16_000, 0.9)
    stage.decider.retire(stage.engine)
    assert memory.of(0) == EngineMemory(16_000, 0.9), "at zero replicas"


def test_another_list_of_workloads_goes_on_with_the_same_engines(stage, scene, plan):
    run(stage, WHOLE, 60, 2000)
    other = scene(plan("new"), plan())
    other.decider.take_over(stage.decider)
    other.now, other.engine, other.node = stage.now, stage.engine, stage.node
    other.round({other.node: gpu(WHOLE), other.engine: vllm(130_000)})
    (sums,) = found(other.decider, other.now, row=1).values()
    assert (sums.seconds, sums.generated) == (pytest.approx(65.0, rel=0.001), pytest.approx(130_000, rel=0.001))
    assert found(other.decider, other.now, row=0) == {}


def test_throughputs_of_a_workload_take_536_bytes(stage):
    columns = {**stage.decider.latest.saturation.columns(), **stage.decider.latest.engine_memories.columns()}
    assert sum(np.prod(column.shape[1:]) * column.itemsize for column in columns.values()) == 520 + 16
