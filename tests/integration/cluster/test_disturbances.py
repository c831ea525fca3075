"""What happens to everybody at once: the API server goes away, and the configuration changes."""

import time

import grpc.aio
import pytest

from exporter.kubernetes.resources import PODS, RESOURCES

from .keda import Keda
from .place import namespace_of
from .process import running
from .waiting import asked_again, until

# After so long without an answer of the API server what it said is not known any more.
BLIND_AFTER_S = 1.0


@pytest.fixture(scope="module")
def own_cluster(new_cluster):
    with new_cluster() as made:
        yield made


@pytest.fixture(scope="module")
def mounted(own_cluster, tmp_path_factory):
    """A directory as kubelet mounts a ConfigMap: `config.yaml` is a link through `..data`, which is a link too."""
    folder = tmp_path_factory.mktemp("mounted")
    (folder / "config.yaml").symlink_to("..data/config.yaml")
    text = own_cluster.config(blind_after=f"{BLIND_AFTER_S:g}s")
    swap(folder, text)
    return folder, text


@pytest.fixture(scope="module")
def tidegate(mounted, tmp_path_factory):
    folder, _ = mounted
    with running(folder / "config.yaml", tmp_path_factory.mktemp("log") / "log") as daemon:
        yield daemon


@pytest.fixture
async def place(own_cluster, tidegate, request):
    """A namespace, in a cluster that the daemon has heard all of again, whatever was before."""
    fake = own_cluster.fake
    await until(watches_of(fake), lambda number: number == len(RESOURCES))
    fake.bookmark()  # a watch that says something is a good one: the next trouble begins with short pauses again
    made = own_cluster.place(namespace_of(request.node.name))
    yield made
    fake.mend()
    made.clear()


def swap(folder, text):
    """As kubelet does: a new directory, and `..data` turned to it in one rename."""
    new = folder / f"..version_{len(list(folder.iterdir()))}"
    new.mkdir()
    (new / "config.yaml").write_text(text, encoding="utf-8")
    (folder / "..data_tmp").symlink_to(new.name)
    (folder / "..data_tmp").rename(folder / "..data")


async def test_a_swapped_config_map_is_taken_without_a_signal_and_a_bad_one_is_not(
    mounted, place, page, tidegate, keda
):
    folder, text = mounted
    place.deployment("llama", page.vllm(waiting=990, running=10), pods=1)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm")
    await keda.until((9, True), chat)
    async with keda.watching(chat) as seen:
        swap(folder, text.replace("tick: 0.1s", "tick: -1s"))
        await tidegate.until_metric("tidegate_config_last_reload_successful", 0.0)
        await tidegate.sweeps(3)
        url = "http://127.0.0.1:1/metrics"
        named = f"workloads: [{{namespace: ai, name: configured, engine: vllm, pods: {{url: '{url}'}}}}]\n"
        swap(folder, text + named)
        await tidegate.until_metric("tidegate_config_last_reload_successful", 1.0)
        await tidegate.until(lambda entry: entry["replicas"] is None, "ai", "configured")
    assert seen == [(9, True)]
    rejected = tidegate.logged("configuration rejected")
    assert [said for said in rejected if "tick" in said["problem"]]


async def test_an_api_server_that_goes_away_changes_no_answer_and_back_again_all_is_right(
    own_cluster, place, page, tidegate, keda
):
    fake = own_cluster.fake
    front = place.service("front", page.epp(held=0, ready=1))
    words = {"engine": "vllm", "gateway": "front", "keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}
    llama = place.deployment("llama", page.vllm(waiting=0, running=20), pods=2)
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=9, **words)
    await keda.until((3, True), chat)
    async with keda.watching(chat) as seen:
        begun = time.time()
        fake.refuse()
        await known(tidegate, 0.0)
        assert time.time() - begun >= BLIND_AFTER_S
        # Blind: the engines have nothing to do any more, and that takes nothing down; more work is still answered.
        llama.say(page.vllm(waiting=0, running=0))
        await tidegate.until(lambda entry: entry["reason"] == "held", place.name, "chat")
        await asked_again(front, 5)
        assert seen == [(3, True)]
        llama.say(page.vllm(waiting=20, running=20))
        await keda.until((5, True), chat)

        # Meanwhile one pod has gone, and another has come.
        llama.pods[0].ends()
        llama.pod(page.vllm(waiting=0, running=3))
        fake.mend()
        await known(tidegate, 1.0)
        await tidegate.until_evidence(place.name, "chat", running=23.0, waiting=20.0, replicas_ready=2, stale=[])
    # 43 requests; on the way there it may have been 4.
    assert seen[:2] == [(3, True), (5, True)]
    assert (0, False) not in seen
    await keda.until((3, True), chat)


@pytest.mark.parametrize("held", [0, None], ids=["asleep", "no_wake_source"])
async def test_at_zero_stays_at_zero_while_the_api_server_is_away(own_cluster, place, page, tidegate, keda, held):
    # None: an endpoint picker that nobody has asked for anything yet prints no queue of its own.
    front = place.service("front", page.epp(held=held, ready=0))
    words = {"engine": "vllm", "gateway": "front", "keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}
    place.deployment("llama")
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=9, **words)
    await keda.until((0, False), chat)
    reason = "no_wake_source" if held is None else "asleep"
    await tidegate.until(lambda entry: entry["reason"] == reason, place.name, "chat")
    async with keda.watching(chat) as seen:
        own_cluster.fake.refuse()
        await known(tidegate, 0.0)
        await asked_again(front, 6)
    assert seen == [(0, False)]
    front.text = page.epp(held=20, ready=0)
    await keda.until((2, True), chat)


async def test_an_api_server_that_hangs_changes_no_answer(own_cluster, place, page, tidegate, keda):
    fake = own_cluster.fake
    llama = place.deployment("llama", page.vllm(waiting=0, running=20), pods=2)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm")
    await keda.until((3, True), chat)
    asked = len(fake.requests)
    async with keda.watching(chat) as seen:
        fake.hang()
        fake.disconnect()
        await until(requests_of(fake), lambda requests: requests > asked)
        await asked_again(llama.pods[0], 5)
        # A call that nobody can check now is no lie.
        stranger = {**chat, "metadata": {**chat["metadata"], "name": "made-a-moment-ago"}}
        assert (await keda.refusal(stranger))[0] in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE}
        llama.pod(page.vllm(waiting=0, running=5))
        fake.mend()
        await tidegate.until_evidence(place.name, "chat", running=45.0, replicas_ready=3)
    assert seen == [(3, True)]


async def test_an_api_server_that_forgot_the_past_is_listed_anew(own_cluster, place, page, tidegate, keda):
    fake = own_cluster.fake
    llama = place.deployment("llama", page.vllm(waiting=0, running=20), pods=2)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm")
    await tidegate.until_evidence(place.name, "chat", running=40.0)
    lists = len(fake.requests_for("list", PODS))
    async with keda.watching(chat) as seen:
        fake.refuse()
        llama.pods[0].ends()
        llama.pod(page.vllm(waiting=0, running=25))
        fake.compact()
        fake.mend()
        await tidegate.until_evidence(place.name, "chat", running=45.0, replicas_ready=2, stale=[])
    assert seen == [(3, True)]
    assert len(fake.requests_for("list", PODS)) > lists


def watches_of(fake):
    async def number():
        return fake.watching

    return number


def requests_of(fake):
    async def number():
        return len(fake.requests)

    return number


async def known(tidegate, wanted):
    """Wait until pods are known, or are not."""
    await tidegate.until_metric('tidegate_kubernetes_synced{resource="pods"}', wanted)


@pytest.fixture
async def keda(tidegate):
    async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
        yield Keda(channel)
