"""GPUs that change pods, while dcgm-exporter restarts and while it loses labels."""

import time

from exporter.attribution import LABEL_MEMORY_S
from tests.fakes.tenant import LONG_AGO_S
from tests.fakes.waiting import until_scraped

# Idle by its requests, so that only its GPUs keep it awake.
METADATA = {"engine": "vllm", "gateway": "front", "keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}
STARTS_S = 30.0


def idle_workload(tenant, page, name="llama", scaled="chat", pods=1):
    """A Deployment with idle engines, and its ScaledObject, which may scale to zero."""
    deployment = tenant.deployment(name, page.vllm(waiting=0, running=0), pods=pods)
    return deployment, tenant.scaled_object(scaled, target=name, minimum=0, maximum=9, **METADATA)


async def test_restarted_dcgm_exporter_never_reads_as_idle(tenant, page, tidegate, keda):
    front = tenant.service("front", page.epp(held=0, ready=1))
    llama, chat = idle_workload(tenant, page)
    busy = page.gpu(f"GPU-{tenant.name}", [llama.pods[0].key], engine=0.9)
    exporter = tenant.gpu_exporter("dcgm-exporter-aaaaa", tenant.name, busy)
    await tidegate.until(lambda entry: entry["reason"] == "gpu_busy", tenant.name, "chat")
    async with keda.watching(chat) as responses:
        # It reloads: 200 without content. The GPUs are missing for much longer than the keep-warm time.
        exporter.serve("")
        await tidegate.until_evidence(tenant.name, "chat", gpu_engine_active=None)
        await until_scraped(front, 5)
        # Its process is gone.
        exporter.refuse()
        await until_scraped(front)
        # Its DaemonSet creates another pod, at another address; then the old pod is deleted.
        new = tenant.gpu_exporter("dcgm-exporter-bbbbb", tenant.name, busy)
        exporter.put(ready=False)
        exporter.remove()
        await tidegate.until_evidence(tenant.name, "chat", gpu_engine_active=0.9)
        await until_scraped(front)
    assert responses == [(1, True)]

    # The GPU alone kept it awake.
    new.serve(page.gpu(f"GPU-{tenant.name}", [llama.pods[0].key], engine=0.0))
    await keda.until((0, False), chat)


async def test_replacement_of_a_dcgm_exporter_pod_puts_no_workload_to_sleep(tenant, page, tidegate, keda):
    # A DaemonSet deletes the old pod before it creates the new one, and pulling an image may take time.
    front = tenant.service("front", page.epp(held=0, ready=1))
    llama, chat = idle_workload(tenant, page)
    busy = page.gpu(f"GPU-{tenant.name}", [llama.pods[0].key], engine=0.9)
    exporter = tenant.gpu_exporter("dcgm-exporter-aaaaa", tenant.name, busy)
    await tidegate.until(lambda entry: entry["reason"] == "gpu_busy", tenant.name, "chat")
    async with keda.watching(chat) as responses:
        exporter.remove()
        await until_scraped(front, 6)
    assert responses == [(1, True)]


async def test_gpu_without_its_label_for_a_while_still_belongs_to_the_pod(tenant, page, tidegate, keda):
    front = tenant.service("front", page.epp(held=0, ready=1))
    llama, chat = idle_workload(tenant, page)
    pod, uuid = llama.pods[0], f"GPU-{tenant.name}"
    exporter = tenant.gpu_exporter("dcgm-exporter-aaaaa", tenant.name, page.gpu(uuid, [pod.key], engine=0.9))
    await tidegate.until(lambda entry: entry["reason"] == "gpu_busy", tenant.name, "chat")
    begun = time.time()
    async with keda.watching(chat) as responses:
        exporter.serve(page.gpu(uuid, engine=0.8))
        await tidegate.until(lambda entry: entry["evidence"]["gpu_engine_active"] in {0.8, None}, tenant.name, "chat")
        await until_scraped(front, 5)
        exporter.serve(page.gpu(uuid, [pod.key], engine=0.9))
        await tidegate.until_evidence(tenant.name, "chat", gpu_engine_active=0.9)
    assert responses == [(1, True)]
    assert time.time() - begun < LABEL_MEMORY_S, "the machine is too slow for this test"

    # A series never outlives its pod, although the target still names it.
    pod.remove()
    llama.scale(0)
    await tidegate.until_evidence(tenant.name, "chat", gpu_engine_active=None, replicas_wanted=0)
    await keda.until((0, False), chat)
    async with keda.watching(chat) as responses:
        await until_scraped(exporter)
    assert responses == [(0, False)]
    assert (await tidegate.evidence(tenant.name, "chat"))["gpu_engine_active"] is None


async def test_value_of_a_gpu_from_before_the_pod_started_is_not_attributed_to_it(tenant, page, tidegate, keda):
    tenant.service("front", page.epp(held=0, ready=1))
    uuid = f"GPU-{tenant.name}"
    giver, gives = idle_workload(tenant, page, "giver", "gives")
    taker, takes = idle_workload(tenant, page, "taker", "takes", pods=0)
    exporter = tenant.gpu_exporter("dcgm-exporter-aaaaa", tenant.name, page.gpu(uuid, [giver.pods[0].key], engine=0.9))
    await tidegate.until_evidence(tenant.name, "gives", gpu_engine_active=0.9)
    await keda.until((1, True), gives)
    await keda.until((0, False), takes)

    # One pod is deleted and the other has just started: the target names it at once, with a value up to 30 s old.
    giver.pods[0].remove()
    giver.scale(0)
    taker.scale(1)
    pod = taker.pod(page.vllm(waiting=0, running=0), ready=False)
    pod.started_at = time.time()
    pod.put(ready=True)
    exporter.serve(page.gpu(uuid, [pod.key], engine=0.9))
    await tidegate.until_evidence(tenant.name, "gives", gpu_engine_active=None)
    await tidegate.until_evidence(tenant.name, "takes", replicas_ready=1)
    await until_scraped(exporter)
    young = await tidegate.evidence(tenant.name, "takes")
    assert time.time() - pod.started_at < STARTS_S, "the machine is too slow for this test"
    assert young["gpu_engine_active"] is None
    await keda.until((0, False), gives)

    # As if an hour had passed: the present value was measured while the pod ran.
    pod.started_at -= LONG_AGO_S
    pod.put()
    await tidegate.until_evidence(tenant.name, "takes", gpu_engine_active=0.9)
    await keda.until((1, True), takes)
    assert (await tidegate.evidence(tenant.name, "gives"))["gpu_engine_active"] is None


async def test_gpu_of_an_unknown_pod_is_not_attributed(tenant, page, tidegate, keda):
    tenant.service("front", page.epp(held=0, ready=1))
    llama, chat = idle_workload(tenant, page)
    # The target names a pod that the cluster lacks, a pod of another namespace, and, on a shared GPU, our pod too.
    pod_key = llama.pods[0].key
    strangers = page.gpu("GPU-x", [(tenant.name, f"{pod_key[1]}x")], engine=0.9) + page.gpu(
        "GPU-y", [("no", pod_key[1])], engine=0.9
    )
    shared = page.gpu("GPU-z", [pod_key, (tenant.name, "stranger-0")], engine=0.9)
    exporter = tenant.gpu_exporter("dcgm-exporter-aaaaa", tenant.name, strangers + shared)
    await until_scraped(exporter)
    await keda.until((0, False), chat)
    assert (await tidegate.evidence(tenant.name, "chat"))["gpu_engine_active"] is None


async def test_exporter_on_another_node_shows_no_gpu_of_the_pod(tenant, page, tidegate, keda):
    tenant.service("front", page.epp(held=0, ready=1))
    llama, chat = idle_workload(tenant, page)
    pod_key = llama.pods[0].key
    # Whoever may label a pod can make it an exporter: what it says of pods elsewhere keeps nothing awake.
    foreign = tenant.gpu_exporter("posed", f"{tenant.name}-other", page.gpu("GPU-x", [pod_key], engine=0.9))
    await until_scraped(foreign)
    await keda.until((0, False), chat)
    assert (await tidegate.evidence(tenant.name, "chat"))["gpu_engine_active"] is None
    tenant.gpu_exporter("dcgm-exporter-aaaaa", tenant.name, page.gpu("GPU-y", [pod_key], engine=0.9))
    await tidegate.until_evidence(tenant.name, "chat", gpu_engine_active=0.9)
    await keda.until((1, True), chat)
