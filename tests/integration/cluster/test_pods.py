"""Pods start, load, fall silent, end and are replaced; the decision follows the requests."""

import time

from tests.fakes import objects
from tests.fakes.waiting import until_scraped

QUICK = {"keep_warm": "1s", "objectives.work": "16", "smoothing.up": "0s", "smoothing.down": "0.3s"}
IMPUTE_AFTER_S = 1.0  # of the daemon that all share
LWS = "leaderworkerset.sigs.k8s.io"


async def test_rollout_with_max_surge_changes_no_decision(tenant, page, tidegate, keda):
    # 3 pods with 12 requests each are 36, 2.25 replicas; 48, while one target lags behind another, are 3 as well.
    busy, done = page.vllm(waiting=0, running=12), page.vllm(waiting=0, running=0)
    llama = tenant.deployment("llama", busy, pods=3)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **QUICK)
    await tidegate.until_evidence(tenant.name, "chat", running=36.0, replicas_ready=3)
    await keda.until((3, True), chat)
    async with keda.watching(chat) as responses:
        for old in list(llama.pods):
            # The surge pod: it loads, becomes ready, and gets the requests that the old pod no longer gets.
            new = llama.pod(generation="7f9c5b4d8", ready=False, listening=False)
            await tidegate.sweeps(3)
            new.listen(done)
            new.put(ready=True)
            await tidegate.until_evidence(tenant.name, "chat", replicas_ready=4, stale=[])
            old.terminate()
            await tidegate.until_evidence(tenant.name, "chat", replicas_ready=3, running=36.0)
            new.serve(busy)
            await tidegate.until_evidence(tenant.name, "chat", running=48.0)
            old.serve(done)
            await tidegate.until_evidence(tenant.name, "chat", running=36.0)
            old.remove()
            await until_scraped(new, 2)
    assert responses == [(3, True)]
    assert all(old.target.scrapes for old in llama.pods)


async def test_lost_node_scales_nothing_down_and_its_pods_are_imputed_and_then_replaced(tenant, page, tidegate, keda):
    # 4 pods with 14 requests each are 56, 3.5 replicas; half of them would be 2 replicas.
    llama = tenant.deployment("llama")
    stay = [llama.pod(page.vllm(waiting=0, running=14), node=f"{tenant.name}-1") for _ in range(2)]
    lost = [llama.pod(page.vllm(waiting=0, running=14), node=f"{tenant.name}-2") for _ in range(2)]
    llama.scale(4)
    metadata = {"engine": "vllm", "objectives.work": "16", "smoothing.up": "0s", "smoothing.down": "5s"}
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, **metadata)
    await tidegate.until_evidence(tenant.name, "chat", running=56.0, replicas_ready=4)
    await keda.until((4, True), chat)
    async with keda.watching(chat) as responses:
        # The node falls silent; Kubernetes reports its pods as ready for about 40 s more.
        for pod in lost:
            pod.hang()
        held = await tidegate.until_evidence(tenant.name, "chat", running=28.0)
        assert (held["replicas"], len(held["evidence"]["stale"])) == (4, 2)
        await until_imputed(tidegate, tenant, "2 of 4")
        for pod in lost:
            pod.put(ready=False)
        await tidegate.until_evidence(tenant.name, "chat", replicas_ready=2)
        await until_scraped(stay[0])

        # After minutes the pods are Terminating; the Service sends their requests to the other pods.
        for pod in lost:
            pod.terminate()
        await tidegate.until_evidence(tenant.name, "chat", running=28.0, notes=[])
        for pod in stay:
            pod.serve(page.vllm(waiting=14, running=14))
        await tidegate.until_evidence(tenant.name, "chat", running=28.0, waiting=28.0)

        # They are deleted, and two new pods replace them.
        for pod in lost:
            pod.remove()
        new = [llama.pod(page.vllm(waiting=0, running=0), node=f"{tenant.name}-3") for _ in range(2)]
        await until_scraped(new[1])
        await tidegate.until_evidence(tenant.name, "chat", replicas_ready=4, replicas_wanted=4, stale=[], notes=[])
    assert responses == [(4, True)]


async def test_unreachable_pod_of_four_is_imputed_and_never_idle(tenant, page, tidegate, keda):
    front = tenant.service("front", page.epp(held=0, ready=4))
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=14), pods=4)
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    await tidegate.until_evidence(tenant.name, "chat", running=56.0)
    await keda.until((4, True), chat)
    async with keda.watching(chat) as responses:
        llama.pods[3].refuse()
        await tidegate.until_evidence(tenant.name, "chat", running=42.0)
        await until_imputed(tidegate, tenant, "3 of 4 ready pods respond")
        await until_scraped(front)
    assert responses == [(4, True)]

    # The imputed value may fall: 3 requests in each of three pods are 12 in four.
    for pod in llama.pods[:3]:
        pod.serve(page.vllm(waiting=0, running=3))
    await keda.until((1, True), chat)

    # Three idle pods prove nothing about the fourth. Four do.
    async with keda.watching(chat) as responses:
        for pod in llama.pods[:3]:
            pod.serve(page.vllm(waiting=0, running=0))
        await tidegate.until_evidence(tenant.name, "chat", running=0.0)
        await until_scraped(front, 5)
    assert responses == [(1, True)]
    llama.pods[3].listen(page.vllm(waiting=0, running=0))
    await keda.until((0, False), chat)


async def test_loading_pod_is_not_scraped_and_counts_as_no_zero(tenant, page, tidegate, keda):
    llama = tenant.deployment("llama", page.vllm(waiting=30, running=10), pods=1, wanted=2)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **QUICK)
    await keda.until((3, True), chat)
    async with keda.watching(chat) as responses:
        loads = llama.pod(ready=False, listening=False)
        await tidegate.until_evidence(tenant.name, "chat", replicas_wanted=2, replicas_ready=1)
        await until_scraped(llama.pods[0])
        loads.listen(page.vllm(waiting=0, running=0))
        await until_scraped(llama.pods[0])
        assert loads.scrapes == 0
        loads.put(ready=True)
        await until_scraped(loads)
        await tidegate.until_evidence(tenant.name, "chat", replicas_ready=2, stale=[])
    assert responses == [(3, True)]


async def test_unscheduled_pod_is_pending(tenant, page, tidegate, keda):
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=20), pods=1, wanted=2)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **QUICK)
    llama.pod(node=None, listening=False)
    wanted = {"replicas_wanted": 2, "replicas_ready": 1, "replicas_pending": 1}
    await tidegate.until_evidence(tenant.name, "chat", **wanted)
    await keda.until((2, True), chat)
    series = f'tidegate_replicas_pending{{namespace="{tenant.name}",workload="chat"}}'
    assert await tidegate.metric(series) == 1.0


async def test_stale_pod_is_named_to_the_operator(tenant, page, tidegate, keda):
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=20), pods=1)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **QUICK)
    await keda.until((2, True), chat)
    (pod,) = llama.pods
    pod.refuse()
    found = await tidegate.until(lambda entry: entry["evidence"]["stale"], tenant.name, "chat")
    assert found["evidence"]["stale"][0].startswith(f"{tenant.name}/{pod.name} (http://")
    assert {line["pod"] for line in tidegate.logged("scrape failed") if "pod" in line} >= {f"{tenant.name}/{pod.name}"}


async def test_terminating_pod_is_activity_and_not_capacity(tenant, page, tidegate, keda):
    front = tenant.service("front", page.epp(held=0, ready=1))
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=0), pods=1)
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    leaving = llama.pod(page.vllm(waiting=0, running=5))
    await keda.until((1, True), chat)
    await tidegate.until_evidence(tenant.name, "chat", replicas_ready=2, running=5.0)
    async with keda.watching(chat) as responses:
        leaving.terminate()
        await tidegate.until_evidence(tenant.name, "chat", replicas_ready=1, running=5.0)
        await until_scraped(front, 5)
    assert responses == [(1, True)]
    leaving.serve(page.vllm(waiting=0, running=0))
    await keda.until((0, False), chat)


async def test_leader_worker_set_is_scaled_by_groups_and_only_leaders_are_scraped(tenant, page, tidegate, keda):
    tenant.put(objects.leader_worker_set("big", tenant.name, replicas=2, size=2))
    tenant.put(objects.stateful_set("big", tenant.name, owner=("LeaderWorkerSet", "big"), replicas=2))
    leaders, workers = [], []
    for group in range(2):
        leader = f"big-{group}"
        tenant.put(objects.stateful_set(leader, tenant.name, owner=("Pod", leader), replicas=1))
        leaders.append(member(tenant, leader, group, 0, owner=("StatefulSet", "big"), text=page.vllm(running=20)))
        workers.append(
            member(tenant, f"{leader}-1", group, 1, owner=("StatefulSet", leader), text=page.vllm(running=99))
        )
    chat = tenant.scaled_object(
        "chat", target="big", kind="LeaderWorkerSet", minimum=1, maximum=9, engine="vllm", **QUICK
    )
    await tidegate.until_evidence(tenant.name, "chat", replicas_wanted=2, replicas_ready=2, running=40.0)
    await keda.until((3, True), chat)

    # Without its worker a group is no ready replica, even if its leader is ready.
    workers[1].put(ready=False)
    await tidegate.until_evidence(tenant.name, "chat", replicas_wanted=2, replicas_ready=1, running=40.0)
    await until_scraped(leaders[1])
    assert [worker.scrapes for worker in workers] == [0, 0]


def member(tenant, name, group, index, *, owner, text):
    """One pod of a group of 2; both listen, but only one is the leader."""
    labels = {f"{LWS}/group-index": str(group), f"{LWS}/worker-index": str(index)}
    pod = tenant.pod(name, owner=owner, labels=labels, metadata={"annotations": {f"{LWS}/size": "2"}})
    pod.listen(text)
    pod.put()
    return pod


async def until_imputed(tidegate, tenant, note):
    """Wait until the decision is imputed, which must not happen before it was held for some time."""
    entry = await tidegate.until(lambda entry: note in "".join(entry["evidence"]["notes"]), tenant.name, "chat")
    assert time.time() - entry["held_since"] >= IMPUTE_AFTER_S
