"""Pods come, load, fall silent, go and are replaced, and the answer is about the requests."""

import time

from tests.fakes import objects

from .waiting import asked_again

QUICK = {"keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}
IMPUTE_AFTER_S = 1.0  # of the daemon that all share
LWS = "leaderworkerset.sigs.k8s.io"


async def test_a_rollout_with_max_surge_changes_no_answer(place, page, tidegate, keda):
    # 3 pods with 12 requests each are 36, 2.25 replicas' worth; 48, while a page is behind another, are 3 as well.
    busy, done = page.vllm(waiting=0, running=12), page.vllm(waiting=0, running=0)
    llama = place.deployment("llama", busy, pods=3)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **QUICK)
    await tidegate.until_evidence(place.name, "chat", running=36.0, replicas_ready=3)
    await keda.until((3, True), chat)
    async with keda.watching(chat) as seen:
        for old in list(llama.pods):
            # A pod more than wanted: it loads, is ready, and the Service sends it what the old one gets no more.
            new = llama.pod(generation="7f9c5b4d8", ready=False, listening=False)
            await tidegate.sweeps(3)
            new.listens(done)
            new.put(ready=True)
            await tidegate.until_evidence(place.name, "chat", replicas_ready=4, stale=[])
            old.leaves()
            await tidegate.until_evidence(place.name, "chat", replicas_ready=3, running=36.0)
            new.says(busy)
            await tidegate.until_evidence(place.name, "chat", running=48.0)
            old.says(done)
            await tidegate.until_evidence(place.name, "chat", running=36.0)
            old.ends()
            await asked_again(new, 2)
    assert seen == [(3, True)]
    assert all(old.page.asked for old in llama.pods)


async def test_a_lost_node_scales_nothing_down_and_its_pods_are_imputed_and_then_replaced(place, page, tidegate, keda):
    # 4 pods with 14 requests each are 56, 3.5 replicas' worth; the half of them would be 2 replicas.
    llama = place.deployment("llama")
    stay = [llama.pod(page.vllm(waiting=0, running=14), node=f"{place.name}-1") for _ in range(2)]
    lost = [llama.pod(page.vllm(waiting=0, running=14), node=f"{place.name}-2") for _ in range(2)]
    llama.scale(4)
    words = {"engine": "vllm", "smoothing.up": "0s", "smoothing.down": "5s"}
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=9, **words)
    await tidegate.until_evidence(place.name, "chat", running=56.0, replicas_ready=4)
    await keda.until((4, True), chat)
    async with keda.watching(chat) as seen:
        # The node falls silent; for 40 s or so Kubernetes still calls its pods ready, and then it does not.
        for pod in lost:
            pod.hangs()
        held = await tidegate.until_evidence(place.name, "chat", running=28.0)
        assert (held["replicas"], len(held["evidence"]["stale"])) == (4, 2)
        await imputed(tidegate, place, "2 of 4")
        for pod in lost:
            pod.put(ready=False)
        await tidegate.until_evidence(place.name, "chat", replicas_ready=2)
        await asked_again(stay[0])

        # After minutes they are to go, and need not answer; the Service sends the others what they got.
        for pod in lost:
            pod.leaves()
        await tidegate.until_evidence(place.name, "chat", running=28.0, notes=[])
        for pod in stay:
            pod.says(page.vllm(waiting=14, running=14))
        await tidegate.until_evidence(place.name, "chat", running=28.0, waiting=28.0)

        # They are gone at last, and two others come in their place.
        for pod in lost:
            pod.ends()
        new = [llama.pod(page.vllm(waiting=0, running=0), node=f"{place.name}-3") for _ in range(2)]
        await asked_again(new[1])
        await tidegate.until_evidence(place.name, "chat", replicas_ready=4, replicas_wanted=4, stale=[], notes=[])
    assert seen == [(4, True)]


async def test_of_three_of_four_pods_the_fourth_is_imputed_and_never_idle(place, page, tidegate, keda):
    front = place.service("front", page.epp(held=0, ready=4))
    llama = place.deployment("llama", page.vllm(waiting=0, running=14), pods=4)
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    await tidegate.until_evidence(place.name, "chat", running=56.0)
    await keda.until((4, True), chat)
    async with keda.watching(chat) as seen:
        llama.pods[3].refuses()
        await tidegate.until_evidence(place.name, "chat", running=42.0)
        await imputed(tidegate, place, "3 of 4 ready pods answer")
        await asked_again(front)
    assert seen == [(4, True)]

    # What was imputed may be less: 3 requests in each of three are 12 in four.
    for pod in llama.pods[:3]:
        pod.says(page.vllm(waiting=0, running=3))
    await keda.until((1, True), chat)

    # Three pods with nothing to do prove nothing of the fourth. Four do.
    async with keda.watching(chat) as seen:
        for pod in llama.pods[:3]:
            pod.says(page.vllm(waiting=0, running=0))
        await tidegate.until_evidence(place.name, "chat", running=0.0)
        await asked_again(front, 5)
    assert seen == [(1, True)]
    llama.pods[3].listens(page.vllm(waiting=0, running=0))
    await keda.until((0, False), chat)


async def test_a_pod_that_loads_is_not_asked_and_says_no_zeros(place, page, tidegate, keda):
    llama = place.deployment("llama", page.vllm(waiting=30, running=10), pods=1, wanted=2)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **QUICK)
    await keda.until((3, True), chat)
    async with keda.watching(chat) as seen:
        loads = llama.pod(ready=False, listening=False)
        await tidegate.until_evidence(place.name, "chat", replicas_wanted=2, replicas_ready=1)
        await asked_again(llama.pods[0])
        loads.listens(page.vllm(waiting=0, running=0))
        await asked_again(llama.pods[0])
        assert loads.asked == 0
        loads.put(ready=True)
        await asked_again(loads)
        await tidegate.until_evidence(place.name, "chat", replicas_ready=2, stale=[])
    assert seen == [(3, True)]


async def test_a_pod_that_no_node_has_taken_is_pending(place, page, tidegate, keda):
    llama = place.deployment("llama", page.vllm(waiting=0, running=20), pods=1, wanted=2)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **QUICK)
    llama.pod(node=None, listening=False)
    wanted = {"replicas_wanted": 2, "replicas_ready": 1, "replicas_pending": 1}
    await tidegate.until_evidence(place.name, "chat", **wanted)
    await keda.until((2, True), chat)
    series = f'tidegate_replicas_pending{{namespace="{place.name}",workload="chat"}}'
    assert await tidegate.metric(series) == 1.0


async def test_a_terminating_pod_is_activity_and_not_capacity(place, page, tidegate, keda):
    front = place.service("front", page.epp(held=0, ready=1))
    llama = place.deployment("llama", page.vllm(waiting=0, running=0), pods=1)
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    leaving = llama.pod(page.vllm(waiting=0, running=5))
    await keda.until((1, True), chat)
    await tidegate.until_evidence(place.name, "chat", replicas_ready=2, running=5.0)
    async with keda.watching(chat) as seen:
        leaving.leaves()
        await tidegate.until_evidence(place.name, "chat", replicas_ready=1, running=5.0)
        await asked_again(front, 5)
    assert seen == [(1, True)]
    leaving.says(page.vllm(waiting=0, running=0))
    await keda.until((0, False), chat)


async def test_a_leader_worker_set_is_scaled_by_groups_and_its_leaders_are_asked(place, page, tidegate, keda):
    place.put(objects.leader_worker_set("big", place.name, replicas=2, size=2))
    place.put(objects.stateful_set("big", place.name, owner=("LeaderWorkerSet", "big"), replicas=2))
    leaders, workers = [], []
    for group in range(2):
        leader = f"big-{group}"
        place.put(objects.stateful_set(leader, place.name, owner=("Pod", leader), replicas=1))
        leaders.append(member(place, leader, group, 0, owner=("StatefulSet", "big"), text=page.vllm(running=20)))
        workers.append(
            member(place, f"{leader}-1", group, 1, owner=("StatefulSet", leader), text=page.vllm(running=99))
        )
    chat = place.scaled_object(
        "chat", target="big", kind="LeaderWorkerSet", minimum=1, maximum=9, engine="vllm", **QUICK
    )
    await tidegate.until_evidence(place.name, "chat", replicas_wanted=2, replicas_ready=2, running=40.0)
    await keda.until((3, True), chat)

    # Without its worker a group is no replica, whatever its leader says.
    workers[1].put(ready=False)
    await tidegate.until_evidence(place.name, "chat", replicas_wanted=2, replicas_ready=1, running=40.0)
    await asked_again(leaders[1])
    assert [worker.asked for worker in workers] == [0, 0]


def member(place, name, group, index, *, owner, text):
    """One pod of a group of 2; both listen, and only one is the leader."""
    labels = {f"{LWS}/group-index": str(group), f"{LWS}/worker-index": str(index)}
    pod = place.pod(name, owner=owner, labels=labels, metadata={"annotations": {f"{LWS}/size": "2"}})
    pod.listens(text)
    pod.put()
    return pod


async def imputed(tidegate, place, sentence):
    """Wait until the decision says so of itself, which it must not before it was held for some time."""
    entry = await tidegate.until(lambda entry: sentence in "".join(entry["evidence"]["notes"]), place.name, "chat")
    assert time.time() - entry["held_since"] >= IMPUTE_AFTER_S
