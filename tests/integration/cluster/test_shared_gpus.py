"""Two Deployments want more GPUs than the cluster has: priority decides, a quota limits, and a new node lifts it all.

The daemon has a cluster of its own: the GPUs of other tests' pods would count.
"""

import pytest

from tests.fakes import objects
from tests.fakes.daemon import running
from tests.fakes.tenant import namespace_of

MODEL = {"metadata": {"labels": {"nvidia.com/gpu.product": "Tesla-T4"}}}
TEMPLATE = {"spec": {"containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
QUICK = {"engine": "vllm", "objectives.work": "16", "smoothing.up": "0s", "smoothing.down": "0s"}


@pytest.fixture(scope="module")
def gpu_cluster(new_cluster):
    with new_cluster() as created:
        yield created


@pytest.fixture(scope="module")
def tidegate(gpu_cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharing")
    config = folder / "config.yaml"
    config.write_text(gpu_cluster.config("sharing: {max_priority: 100}\n"), encoding="utf-8")
    with running(config, folder / "log") as daemon:
        yield daemon


@pytest.fixture
def tenant(gpu_cluster, request):
    created = gpu_cluster.tenant(namespace_of(request.node.name))
    yield created
    created.clear()


def deployment(tenant, name, text):
    """A Deployment whose replicas need one GPU each, and one pod with a GPU of node gpu-1."""
    created = tenant.deployment(name, wanted=1, spec={"template": TEMPLATE})
    created.pod(text, node="gpu-1", gpus=1)
    return created


def limited(entry):
    return entry["reason"] == "capacity_limited"


async def test_priority_decides_a_quota_limits_and_a_new_node_lifts_the_limit(tenant, page, tidegate):
    tenant.put(objects.node("gpu-1", gpus=8, **MODEL))
    chat, _ = (
        deployment(tenant, name, page.vllm(waiting=0, running=running))
        for name, running in (("chat", 16), ("batch", 80))
    )
    tenant.scaled_object("chat", target="chat", minimum=1, maximum=8, **QUICK, **{"share.priority": "10"})
    tenant.scaled_object("batch", target="batch", minimum=1, maximum=8, **QUICK)
    await tidegate.until(lambda entry: entry["replicas"] == 5, tenant.name, "batch")
    await tidegate.until(lambda entry: entry["replicas"] == 1, tenant.name, "chat")

    # 6 and 5 of 8 GPUs: chat has the higher priority.
    chat.serve(page.vllm(waiting=0, running=96))
    entry = await tidegate.until(limited, tenant.name, "batch")
    assert (entry["replicas"], entry["evidence"]["gpu_share_replicas"]) == (2, 2)
    await tidegate.until(lambda entry: entry["replicas"] == 6 and not limited(entry), tenant.name, "chat")
    labels = f'namespace="{tenant.name}",workload="batch"'
    assert await tidegate.metric(f"tidegate_gpu_share_replicas{{{labels}}}") == 2.0
    explained = (await tidegate.get(f"/api/v1/explain/{tenant.name}/batch")).json()
    assert explained["summary"].endswith("5 are wanted, and its share of the GPUs has room for 2")
    (step,) = [each for each in explained["chain"] if each["step"] == "overrides"]
    room = "The GPUs have room for 2 replicas of it (priority 0, weight 1). Without it: 5 replicas, serving."
    assert room in step["sentences"]
    (row,) = [each for each in (await tidegate.get("/api/v1/rows")).json()["workloads"] if each["name"] == "batch"]
    assert row["reason"] == "capacity_limited"
    needs = "5 replicas are needed, its share of the GPUs has room for 2"
    assert row["why"] == f"GPU-limited: 80 requests in progress, 0 waiting; {needs}"

    # A pod that belongs to no workload takes 3 GPUs.
    stranger = tenant.pod("stranger", node="gpu-1", gpus=3)
    stranger.put()
    await tidegate.until(lambda entry: entry["replicas"] == 1 and limited(entry), tenant.name, "batch")
    await tidegate.until(lambda entry: entry["replicas"] == 4 and limited(entry), tenant.name, "chat")

    # The node autoscaler adds a node of 8: all want 14 of 16.
    tenant.put(objects.node("gpu-2", gpus=8, **MODEL))
    await tidegate.until(lambda entry: entry["replicas"] == 6 and not limited(entry), tenant.name, "chat")
    await tidegate.until(lambda entry: entry["replicas"] == 5 and not limited(entry), tenant.name, "batch")

    # A quota of the namespace counts the stranger's GPUs too: 8 - 3 are left.
    quota = objects.resource_quota("gpus", tenant.name, gpus=8)
    tenant.put(quota)
    await tidegate.until(lambda entry: entry["replicas"] == 1 and limited(entry), tenant.name, "batch")
    await tidegate.until(lambda entry: entry["replicas"] == 4 and limited(entry), tenant.name, "chat")
    tenant.delete(quota)
    await tidegate.until(lambda entry: entry["replicas"] == 5 and not limited(entry), tenant.name, "batch")

    # A taint that no pod tolerates leaves the 5 of the first node.
    taint = {"key": "team", "value": "other", "effect": "NoSchedule"}
    tenant.put(objects.node("gpu-2", gpus=8, spec={"taints": [taint]}, **MODEL))
    await tidegate.until(lambda entry: entry["replicas"] == 1 and limited(entry), tenant.name, "batch")
    tenant.put(objects.node("gpu-2", gpus=8, **MODEL))
    await tidegate.until(lambda entry: entry["replicas"] == 5 and not limited(entry), tenant.name, "batch")

    # Kueue has 4 GPUs for batch's queue, of which others have reserved 1 and its pod 1.
    queues = (objects.cluster_queue("gpus", gpus=4, reserved=2), objects.local_queue("main", tenant.name, queue="gpus"))
    tenant.put(*queues)
    labels = {"labels": {"kueue.x-k8s.io/queue-name": "main"}}
    queued = objects.deployment("batch", tenant.name, replicas=1, metadata=labels, spec={"template": TEMPLATE})
    tenant.put(queued)
    await tidegate.until(lambda entry: entry["replicas"] == 3 and limited(entry), tenant.name, "batch")
    tenant.delete(*queues)
    await tidegate.until(lambda entry: entry["replicas"] == 5 and not limited(entry), tenant.name, "batch")
