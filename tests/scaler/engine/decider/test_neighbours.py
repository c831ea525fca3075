"""Invariant 10: no input of one workload changes the decision of another."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.budget import examples

number = st.sampled_from(["0", "1", "7", "1e9", "-1", "NaN", "+Inf", "oops", "9223372036854775794"])
name = st.sampled_from(
    [
        "vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:request_success_total",
        "vllm:kv_cache_usage_perc", "inference_extension_flow_control_queue_size", "redis_key_size",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL",
    ]
)  # fmt: skip
labels = st.sampled_from(
    [
        'model_name="m"', 'model_name="other"', 'inference_pool="p"', 'db="0",key="k"', "", 'broken="',
        'UUID="G",namespace="ai",pod="other-0"', 'UUID="G",namespace="ai",pod="stranger-0"',
    ]
)  # fmt: skip
line = st.builds("{}{{{}}} {}".format, name, labels, number)
garbage = st.lists(line, max_size=6).map(lambda lines: "".join(f"{line}\n" for line in lines))


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(moments=st.lists(st.tuples(st.sampled_from(["pod", "gateway", "node"]), garbage), max_size=8))
def test_garbage_of_one_workload_changes_no_other_decision(scene, plan, pod, gateway, node, page, moments):
    stage = scene(plan("chat", gateway=True), plan("other", gateway=True))
    engine, front = pod(), gateway()
    stage.has(pods=[engine], gateway=front, wanted=2)
    theirs = {
        "pod": pod(9, name="other", kind="auto"),
        "gateway": gateway(name="other", kind="auto", url="http://theirs:1"),
        "node": node(),
    }
    mine = {engine: page.vllm(waiting=0, running=20, finished=5), front: page.epp(held=0, ready=2)}
    for _ in range(2):  # from the second scrape on there is a rate
        assert stage.round(mine) == (2, True, "serving")
    before = stage.decision().evidence
    for where, text in moments:
        stage.land(engine, mine[engine])
        stage.land(theirs[where], text)
        assert stage.round(mine) == (2, True, "serving")
        assert stage.decision().evidence == before


def test_deciding_many_workloads_equals_deciding_each_alone(scene, plan, pod, page):
    """Slots are shared among workloads: none may read the slots of another."""
    names = [f"w{n}" for n in range(40)]
    together, alone = scene(*(plan(name) for name in names)), [scene(plan(name)) for name in names]
    pods = {name: [pod(10 * n + each, name=name) for each in range(n % 3 + 1)] for n, name in enumerate(names)}
    for name, single in zip(names, alone, strict=True):
        together.has(pods=pods[name], name=name)
        single.has(pods=pods[name], name=name)
    for turn in range(6):
        for n, (name, single) in enumerate(zip(names, alone, strict=True)):
            for index, each in enumerate(pods[name]):
                if (n + index + turn) % 5 == 0:  # this scrape failed
                    continue
                text = page.vllm(waiting=n, running=(n * turn + index) % 50, finished=turn)
                together.land(each, text)
                single.land(each, text)
            if turn == 3 and n % 4 == 0:
                for stage in (together, single):
                    stage.decider.retire(pods[name][-1])
                    stage.has(pods=pods[name][:-1], name=name)
        together.sweep(after=4)
        for name, single in zip(names, alone, strict=True):
            single.sweep(after=4)
            assert together.decision(name) == single.decision(name)
