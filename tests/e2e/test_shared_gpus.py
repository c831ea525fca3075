"""Two Deployments want more GPUs than the node has: priority decides, and a ResourceQuota limits both.

The node's GPUs have a model of their own, so no other node of the cluster counts.
"""

import pytest

from .hollow_node import LABELS, MODEL_LABEL
from .tenant import QUICK
from .test_events import events_of
from .test_shipped_objects import assert_permitted
from .waiting import until

TAKES = ("events",)
EVERYWHERE = True  # it must see the pods of all namespaces


@pytest.fixture
def eight(node):
    """The node has 8 GPUs."""
    node.allocate(8)
    yield node
    node.allocate(64)


def test_priority_decides_a_quota_limits_and_new_gpus_lift_the_limit(tenant, page, eight):
    for name, requests, priority in (("chat", 8, "10"), ("batch", 72, "0")):
        tenant.deployment(name, page.vllm, requests=requests, gpus=1)
        tenant.scaled_object(name, minimum=1, maximum=9, **QUICK, **{"share.priority": priority})
    until_all(tenant, chat=1, batch=5)

    # 88 requests need 6 replicas, and 72 need 5: 11 of 8 GPUs.
    tenant.set_load("chat", requests=88)
    until_all(tenant, chat=6, batch=2)
    until_limited(tenant, "batch")
    found = until(lambda: events_of(tenant, "batch"), bool)
    assert {event["reason"] for event in found} == {"CapacityLimited"}

    quota = {"hard": {"requests.nvidia.com/gpu": "5"}}
    metadata = {"name": "gpus", "namespace": tenant.name}
    tenant.api.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": quota})
    until_all(tenant, chat=4, batch=1)

    tenant.api.delete(f"/api/v1/namespaces/{tenant.name}/resourcequotas/gpus")
    eight.allocate(16)
    until_all(tenant, chat=6, batch=5)


@pytest.fixture
def queue(tenant, node):
    """A LocalQueue `main`, whose ClusterQueue has 3 GPUs of the node's model, all reserved: by the only pod and by
    others. In the place of Kueue's controller this fixture writes the status. Returns a function that deletes all.
    """
    version, name = "kueue.x-k8s.io/v1beta2", node.name
    if not tenant.api.serves({"apiVersion": version, "kind": "ClusterQueue"}):
        pytest.skip("the cluster has no CRDs of Kueue")
    if tenant.api.items("/apis/apps/v1/deployments", labelSelector="app.kubernetes.io/name=kueue"):
        pytest.skip("Kueue's controller would hold the pods: this test needs its CRDs alone")
    flavor = {"name": name, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "3"}]}
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}]
    made = [
        ("ResourceFlavor", {"name": name, "labels": LABELS}, {"nodeLabels": {MODEL_LABEL: node.model}}),
        ("ClusterQueue", {"name": name, "labels": LABELS}, {"namespaceSelector": {}, "resourceGroups": groups}),
        ("LocalQueue", {"name": "main", "namespace": tenant.name}, {"clusterQueue": name}),
    ]
    documents = [{"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec} for kind, meta, spec in made]
    for document in documents:
        tenant.api.create(document)
    used = [{"name": name, "resources": [{"name": "nvidia.com/gpu", "total": "3", "borrowed": "0"}]}]
    status = {"flavorsReservation": used, "flavorsUsage": used}
    tenant.api.patch(f"{tenant.api.collection(documents[1])}/{name}/status", {"status": status})

    def delete():
        for document in documents:
            tenant.api.delete(f"{tenant.api.collection(document)}/{document['metadata']['name']}")

    yield delete
    delete()


def test_queue_of_kueue_limits(tenant, page, queue):
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    tenant.deployment("batch", page.vllm, requests=8, gpus=1, labels=labels)
    tenant.scaled_object("batch", minimum=1, maximum=9, **QUICK)
    tenant.until_replicas("batch", 1)
    # 72 requests need 5 replicas.
    tenant.set_load("batch", requests=72)
    until_limited(tenant, "batch")
    tenant.stays_at("batch", 1, 20)
    queue()
    until_all(tenant, batch=5)


def until_limited(tenant, name):
    until(
        lambda: tenant.tidegate.decision(tenant.name, name),
        lambda entry: entry and entry["reason"] == "capacity_limited",
    )


def until_all(tenant, **wanted):
    for name, replicas in wanted.items():
        tenant.until_replicas(name, replicas)


def test_service_account_has_every_permission_for_sharing(tidegate):
    assert_permitted(tidegate)
