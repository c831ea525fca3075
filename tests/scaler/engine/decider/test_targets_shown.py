"""Tests the table of targets of one workload: ages, values, and why a target does not count."""

from exporter.model import WorkloadKey

CHAT = WorkloadKey("ai", "chat")


def test_targets_of_pods_gateways_and_gpus_are_distinguished(scene, plan, pod, gateway, page, node):
    stage = scene(plan(gateway=True, pattern="chat-*"))
    engine, front = pod(0), gateway()
    stage.has(pods=[engine], gateway=front, wanted=1)
    stage.round({engine: page.vllm(waiting=3, running=5, kv=0.5), front: page.epp(held=2, ready=1)})
    stage.now += 4.0
    found = {read.of: read for read in stage.decider.latest.pages(CHAT, stage.now)}
    assert set(found) == {"pods", "gateway"}
    assert (found["pods"].age_s, found["pods"].fresh, found["pods"].why) == (4.0, True, "")
    assert (found["pods"].waiting, found["pods"].running, found["pods"].kv_cache) == (3.0, 5.0, 0.5)
    assert (found["pods"].held, found["pods"].gpus, found["gateway"].held) == (None, None, 2.0)


def test_target_that_does_not_count_shows_the_reason(scene, plan, pod, page):
    stage = scene(plan())
    targets = [pod(number) for number in range(4)]
    stage.has(pods=targets, wanted=4, leaving=[targets[3]])
    full, short = page.vllm(waiting=3, running=5), page.vllm(waiting=3)
    stage.round({targets[0]: full, targets[2]: full, targets[3]: full})
    stage.round({targets[2]: short, targets[3]: full})
    stage.now += 12.0
    shown = {read.name: read for read in stage.decider.latest.pages(CHAT, stage.now)}
    assert [(shown[target.named].fresh, shown[target.named].why) for target in targets] == [
        (False, "no: too old"),
        (False, "no: it never answered"),
        (False, 'as a lower bound: vllm:num_requests_running{model_name="m",engine="0"} is missing'),
        (True, "as activity: its pod is on its way out"),
    ]
    assert shown[targets[1].named].age_s is None


def test_copy_of_a_window_is_ordered_and_does_not_change(scene, plan, pod, page):
    stage, target = scene(plan()), pod(0)
    stage.has(pods=[target], wanted=1)
    for number in range(140):  # more than a ring is long
        stage.round({target: page.vllm(waiting=0, running=number)})
    rings = stage.decider.rings(CHAT)
    stage.round({target: page.vllm(waiting=0, running=999)})
    assert rings.values[0].tolist() == [float(number) for number in range(12, 140)]
    assert rings.times.tolist() == [1005.0 + 5.0 * number for number in range(12, 140)]
