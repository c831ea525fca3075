"""What dcgm-exporter says of GPUs that change hands, while it is restarted and while it forgets labels."""

import time

from exporter.attribution import LABEL_MEMORY_S

from .place import LONG_AGO_S
from .waiting import asked_again

# Idle by its requests, so that only its GPUs keep it awake.
WORDS = {"engine": "vllm", "gateway": "front", "keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}
STARTS_S = 30.0


def idle_workload(place, page, name="llama", scaled="chat", pods=1):
    """A Deployment whose engines have nothing to do, and its ScaledObject, which may go to zero."""
    made = place.deployment(name, page.vllm(waiting=0, running=0), pods=pods)
    return made, place.scaled_object(scaled, target=name, minimum=0, maximum=9, **WORDS)


async def test_a_restarted_dcgm_exporter_never_reads_as_idle(place, page, tidegate, keda):
    front = place.service("front", page.epp(held=0, ready=1))
    llama, chat = idle_workload(place, page)
    busy = page.gpu(f"GPU-{place.name}", [llama.pods[0].key], engine=0.9)
    exporter = place.gpu_exporter("dcgm-exporter-aaaaa", place.name, busy)
    await tidegate.until(lambda entry: entry["reason"] == "gpu_busy", place.name, "chat")
    async with keda.watching(chat) as seen:
        # It reloads: 200 and nothing in it. Its GPUs are not seen for much longer than the keep-warm time.
        exporter.says("")
        await tidegate.until_evidence(place.name, "chat", gpu_engine_active=None)
        await asked_again(front, 5)
        # Its process is gone.
        exporter.refuses()
        await asked_again(front)
        # Its DaemonSet makes another pod, at another address, and then the old one is gone.
        new = place.gpu_exporter("dcgm-exporter-bbbbb", place.name, busy)
        exporter.put(ready=False)
        exporter.ends()
        await tidegate.until_evidence(place.name, "chat", gpu_engine_active=0.9)
        await asked_again(front)
    assert seen == [(1, True)]

    # It is the GPU alone that kept it awake.
    new.says(page.gpu(f"GPU-{place.name}", [llama.pods[0].key], engine=0.0))
    await keda.until((0, False), chat)


async def test_between_two_pods_of_a_dcgm_exporter_nothing_falls_asleep(place, page, tidegate, keda):
    # A DaemonSet deletes the old pod before it makes the new one, and an image may have to be pulled.
    front = place.service("front", page.epp(held=0, ready=1))
    llama, chat = idle_workload(place, page)
    busy = page.gpu(f"GPU-{place.name}", [llama.pods[0].key], engine=0.9)
    exporter = place.gpu_exporter("dcgm-exporter-aaaaa", place.name, busy)
    await tidegate.until(lambda entry: entry["reason"] == "gpu_busy", place.name, "chat")
    async with keda.watching(chat) as seen:
        exporter.ends()
        await asked_again(front, 6)
    assert seen == [(1, True)]


async def test_a_gpu_that_loses_its_label_for_a_while_is_still_the_pods(place, page, tidegate, keda):
    front = place.service("front", page.epp(held=0, ready=1))
    llama, chat = idle_workload(place, page)
    pod, uuid = llama.pods[0], f"GPU-{place.name}"
    exporter = place.gpu_exporter("dcgm-exporter-aaaaa", place.name, page.gpu(uuid, [pod.key], engine=0.9))
    await tidegate.until(lambda entry: entry["reason"] == "gpu_busy", place.name, "chat")
    begun = time.time()
    async with keda.watching(chat) as seen:
        exporter.says(page.gpu(uuid, engine=0.8))
        await tidegate.until(lambda entry: entry["evidence"]["gpu_engine_active"] in {0.8, None}, place.name, "chat")
        await asked_again(front, 5)
        exporter.says(page.gpu(uuid, [pod.key], engine=0.9))
        await tidegate.until_evidence(place.name, "chat", gpu_engine_active=0.9)
    assert seen == [(1, True)]
    assert time.time() - begun < LABEL_MEMORY_S, "too slow a machine to say anything"

    # A series never outlives its pod: the page goes on naming it.
    pod.ends()
    llama.scale(0)
    await tidegate.until_evidence(place.name, "chat", gpu_engine_active=None, replicas_wanted=0)
    await keda.until((0, False), chat)
    async with keda.watching(chat) as seen:
        await asked_again(exporter)
    assert seen == [(0, False)]
    assert (await tidegate.evidence(place.name, "chat"))["gpu_engine_active"] is None


async def test_a_gpu_that_changes_hands_does_not_charge_the_new_pod_with_the_old_value(place, page, tidegate, keda):
    place.service("front", page.epp(held=0, ready=1))
    uuid = f"GPU-{place.name}"
    giver, gives = idle_workload(place, page, "giver", "gives")
    taker, takes = idle_workload(place, page, "taker", "takes", pods=0)
    exporter = place.gpu_exporter("dcgm-exporter-aaaaa", place.name, page.gpu(uuid, [giver.pods[0].key], engine=0.9))
    await tidegate.until_evidence(place.name, "gives", gpu_engine_active=0.9)
    await keda.until((1, True), gives)
    await keda.until((0, False), takes)

    # The one pod goes and the other has begun just now: the page names it at once, beside a value up to 30 s old.
    giver.pods[0].ends()
    giver.scale(0)
    taker.scale(1)
    pod = taker.pod(page.vllm(waiting=0, running=0), ready=False)
    pod.started_at = time.time()
    pod.put(ready=True)
    exporter.says(page.gpu(uuid, [pod.key], engine=0.9))
    await tidegate.until_evidence(place.name, "gives", gpu_engine_active=None)
    await tidegate.until_evidence(place.name, "takes", replicas_ready=1)
    await asked_again(exporter)
    young = await tidegate.evidence(place.name, "takes")
    assert time.time() - pod.started_at < STARTS_S, "too slow a machine to say anything"
    assert young["gpu_engine_active"] is None
    await keda.until((0, False), gives)

    # As if an hour had passed: what the page says now was measured while it ran.
    pod.started_at -= LONG_AGO_S
    pod.put()
    await tidegate.until_evidence(place.name, "takes", gpu_engine_active=0.9)
    await keda.until((1, True), takes)
    assert (await tidegate.evidence(place.name, "gives"))["gpu_engine_active"] is None


async def test_a_gpu_of_nobodys_pod_is_nobodys(place, page, tidegate, keda):
    place.service("front", page.epp(held=0, ready=1))
    llama, chat = idle_workload(place, page)
    # The page names a pod that the cluster does not have, one of another namespace, and, on a shared GPU, ours too.
    own = llama.pods[0].key
    strangers = page.gpu("GPU-x", [(place.name, f"{own[1]}x")], engine=0.9) + page.gpu(
        "GPU-y", [("no", own[1])], engine=0.9
    )
    shared = page.gpu("GPU-z", [own, (place.name, "stranger-0")], engine=0.9)
    exporter = place.gpu_exporter("dcgm-exporter-aaaaa", place.name, strangers + shared)
    await asked_again(exporter)
    await keda.until((0, False), chat)
    assert (await tidegate.evidence(place.name, "chat"))["gpu_engine_active"] is None
