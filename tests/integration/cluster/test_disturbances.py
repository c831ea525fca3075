"""Disturbances of all workloads at once: the API server goes away, and the configuration changes."""

import time

import grpc.aio
import pytest

from exporter.kubernetes.resources import PODS, RESOURCES
from tests.fakes.daemon import running
from tests.fakes.keda import Keda
from tests.fakes.tenant import namespace_of
from tests.fakes.waiting import until, until_scraped

# After this time without a response of the API server the cluster's state is unknown.
BLIND_AFTER_S = 1.0


@pytest.fixture(scope="module")
def separate_cluster(new_cluster):
    with new_cluster() as created:
        yield created


@pytest.fixture(scope="module")
def mounted(separate_cluster, tmp_path_factory):
    """A directory as kubelet mounts a ConfigMap: `config.yaml` links through `..data`, which is a link as well."""
    folder = tmp_path_factory.mktemp("mounted")
    (folder / "config.yaml").symlink_to("..data/config.yaml")
    text = separate_cluster.config(blind_after=f"{BLIND_AFTER_S:g}s")
    swap(folder, text)
    return folder, text


@pytest.fixture(scope="module")
def tidegate(mounted, tmp_path_factory):
    folder, _ = mounted
    with running(folder / "config.yaml", tmp_path_factory.mktemp("log") / "log") as daemon:
        yield daemon


@pytest.fixture
async def tenant(separate_cluster, tidegate, request):
    """A namespace in a cluster; the daemon has listed its resources again since the previous test."""
    fake = separate_cluster.fake
    await until(watches_of(fake), lambda number: number == len(RESOURCES))
    fake.bookmark()  # resets the backoff of the watches: the next failure begins with short pauses
    created = separate_cluster.tenant(namespace_of(request.node.name))
    yield created
    fake.mend()
    created.clear()


def swap(folder, text):
    """Replace the file as kubelet does: a new directory, and `..data` pointed to it in one rename."""
    new = folder / f"..version_{len(list(folder.iterdir()))}"
    new.mkdir()
    (new / "config.yaml").write_text(text, encoding="utf-8")
    (folder / "..data_tmp").symlink_to(new.name)
    (folder / "..data_tmp").rename(folder / "..data")


async def test_swapped_config_map_is_applied_without_a_signal_and_an_invalid_one_is_not(
    mounted, tenant, page, tidegate, keda
):
    folder, text = mounted
    tenant.deployment("llama", page.vllm(waiting=990, running=10), pods=1)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm")
    await keda.until((9, True), chat)
    async with keda.watching(chat) as responses:
        swap(folder, text.replace("tick: 0.1s", "tick: -1s"))
        await tidegate.until_metric("tidegate_config_last_reload_successful", 0.0)
        await tidegate.sweeps(3)
        url = "http://127.0.0.1:1/metrics"
        named = f"workloads: [{{namespace: ai, name: configured, engine: vllm, pods: {{url: '{url}'}}}}]\n"
        swap(folder, text + named)
        await tidegate.until_metric("tidegate_config_last_reload_successful", 1.0)
        await tidegate.until(lambda entry: entry["replicas"] is None, "ai", "configured")
    assert responses == [(9, True)]
    rejected = tidegate.logged("configuration rejected")
    assert [line for line in rejected if "tick" in line["problem"]]


async def test_unreachable_api_server_changes_no_decision_and_decisions_follow_after_its_return(
    separate_cluster, tenant, page, tidegate, keda
):
    fake = separate_cluster.fake
    front = tenant.service("front", page.epp(held=0, ready=1))
    metadata = {
        "engine": "vllm", "gateway": "front", "objectives.work": "16", "keep_warm": "1s", "smoothing.up": "0s",
        "smoothing.down": "0.3s",
    }  # fmt: skip
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=20), pods=2)
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=9, **metadata)
    await keda.until((3, True), chat)
    async with keda.watching(chat) as responses:
        begun = time.time()
        fake.refuse()
        await until_synced(tidegate, 0.0)
        assert time.time() - begun >= BLIND_AFTER_S
        await tidegate.sweeps(2)  # decisions know it from the next sweep on
        # Blind: engines without work scale nothing down, but more work still scales up.
        llama.serve(page.vllm(waiting=0, running=0))
        await tidegate.until(lambda entry: entry["reason"] == "held", tenant.name, "chat")
        await until_scraped(front, 5)
        assert responses == [(3, True)]
        llama.serve(page.vllm(waiting=20, running=20))
        await keda.until((5, True), chat)

        # Meanwhile one pod was deleted, and another one was created.
        llama.pods[0].remove()
        llama.pod(page.vllm(waiting=0, running=3))
        fake.mend()
        await until_synced(tidegate, 1.0)
        await tidegate.until_evidence(tenant.name, "chat", running=23.0, waiting=20.0, replicas_ready=2, stale=[])
    # 43 requests; on the way it may have been 4.
    assert responses[:2] == [(3, True), (5, True)]
    assert (0, False) not in responses
    await keda.until((3, True), chat)


@pytest.mark.parametrize("held", [0, None], ids=["asleep", "no_wake_source"])
async def test_workload_stays_at_zero_while_the_api_server_is_away(
    separate_cluster, tenant, page, tidegate, keda, held
):
    # None: an endpoint picker that has had no request yet exposes no queue.
    front = tenant.service("front", page.epp(held=held, ready=0))
    metadata = {
        "engine": "vllm", "gateway": "front", "objectives.work": "16", "keep_warm": "1s", "smoothing.up": "0s",
        "smoothing.down": "0.3s",
    }  # fmt: skip
    tenant.deployment("llama")
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=9, **metadata)
    await keda.until((0, False), chat)
    reason = "no_wake_source" if held is None else "asleep"
    await tidegate.until(lambda entry: entry["reason"] == reason, tenant.name, "chat")
    async with keda.watching(chat) as responses:
        separate_cluster.fake.refuse()
        await until_synced(tidegate, 0.0)
        await until_scraped(front, 6)
    assert responses == [(0, False)]
    front.body = page.epp(held=20, ready=0)
    await keda.until((2, True), chat)


async def test_hanging_api_server_changes_no_decision(separate_cluster, tenant, page, tidegate, keda):
    fake = separate_cluster.fake
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=20), pods=2)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm")
    await keda.until((3, True), chat)
    requests_before = len(fake.requests)
    async with keda.watching(chat) as responses:
        fake.hang()
        fake.disconnect()
        await until(requests_of(fake), lambda requests: requests > requests_before)
        await until_scraped(llama.pods[0], 5)
        # A call that cannot be checked now is no forgery.
        stranger = {**chat, "metadata": {**chat["metadata"], "name": "made-a-moment-ago"}}
        assert (await keda.refusal(stranger))[0] in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE}
        llama.pod(page.vllm(waiting=0, running=5))
        fake.mend()
        await tidegate.until_evidence(tenant.name, "chat", running=45.0, replicas_ready=3)
    assert responses == [(3, True)]


async def test_resources_are_listed_again_after_410_gone(separate_cluster, tenant, page, tidegate, keda):
    fake = separate_cluster.fake
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=20), pods=2)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm")
    await tidegate.until_evidence(tenant.name, "chat", running=40.0)
    lists = len(fake.requests_for("list", PODS))
    async with keda.watching(chat) as responses:
        fake.refuse()
        llama.pods[0].remove()
        llama.pod(page.vllm(waiting=0, running=25))
        fake.compact()
        fake.mend()
        await tidegate.until_evidence(tenant.name, "chat", running=45.0, replicas_ready=2, stale=[])
    assert responses == [(3, True)]
    assert len(fake.requests_for("list", PODS)) > lists


def watches_of(fake):
    async def number():
        return fake.watching

    return number


def requests_of(fake):
    async def number():
        return len(fake.requests)

    return number


async def until_synced(tidegate, wanted):
    """Wait until pods are synced (1.0) or not (0.0)."""
    await tidegate.until_metric('tidegate_kubernetes_synced{resource="pods"}', wanted)


@pytest.fixture
async def keda(tidegate):
    async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
        yield Keda(channel)
