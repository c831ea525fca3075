"""A ScaledObject is edited to scale another Deployment: no state of the first Deployment decides about the second.

The windows never fill here (`freshness.at_start` is an hour), so the present replicas remain the lower bound
throughout.
"""

from contextlib import asynccontextmanager

import grpc.aio
import pytest

from exporter.kubernetes.resources import DEPLOYMENTS
from tests.fakes.daemon import running
from tests.fakes.keda import Keda
from tests.fakes.waiting import meanwhile, until, until_scraped

SMALL, LARGE = 3, 20


@pytest.fixture
def config(cluster, tmp_path):
    """A configuration file that keeps its state in `tmp_path`."""
    file = tmp_path / "config.yaml"
    text = cluster.config(f'state: {{directory: "{tmp_path}/state", interval: 1h}}\n')
    # Fresh long enough that no scrape is late on a busy machine.
    text = text.replace("at_start: 0s", "at_start: 1h").replace("intervals: 5", "intervals: 200")
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def deployments(tenant, page):
    """Two Deployments under load: `small` needs its 3 replicas; each of the 20 pods of `large` has a third of a
    replica's load.
    """
    tenant.deployment("small", page.vllm(waiting=0, running=16), pods=SMALL)
    large = tenant.deployment("large", page.vllm(waiting=0, running=5), pods=LARGE)
    return tenant, large


@asynccontextmanager
async def connected(daemon):
    async with grpc.aio.insecure_channel(daemon.grpc) as channel:
        yield Keda(channel)


@asynccontextmanager
async def responses_to(keda, scaled):
    """Every change of the response while the block runs, in order."""
    responses = []

    async def ask():
        answer = await keda.answer(scaled)
        if not responses or responses[-1] != answer:
            responses.append(answer)

    async with meanwhile(ask):
        yield responses
    await ask()


def numbers(responses):
    return [answer[0] for answer in responses if isinstance(answer, tuple)]


async def is_nonempty(responses):
    return bool(responses)


async def until_all_pods_are_scraped(daemon, tenant, pods):
    """Wait until every pod of the target is scraped, so that the demand is complete."""
    await daemon.until_evidence(tenant.name, "chat", replicas_wanted=pods, replicas_ready=pods, running=5.0 * pods)
    await daemon.sweeps(5)


async def test_new_scale_target_starts_from_the_replicas_it_has(config, deployments, tmp_path):
    tenant, _ = deployments
    chat = tenant.scaled_object("chat", target="small", minimum=1, maximum=40, engine="vllm")
    with running(config, tmp_path / "log") as daemon:
        async with connected(daemon) as keda:
            await keda.until((SMALL, True), chat)
            async with responses_to(keda, chat) as responses:
                await until(lambda: is_nonempty(responses), bool)
                chat["spec"]["scaleTargetRef"]["name"] = "large"
                tenant.put(chat)
                await until_all_pods_are_scraped(daemon, tenant, LARGE)
    assert numbers(responses) == [SMALL, LARGE]


async def test_edit_that_keeps_the_scale_target_keeps_its_state(config, deployments, tmp_path):
    tenant, _ = deployments
    chat = tenant.scaled_object("chat", target="small", minimum=1, maximum=40, engine="vllm", keep_warm="6m")
    with running(config, tmp_path / "log") as daemon:
        async with connected(daemon) as keda:
            await keda.until((SMALL, True), chat)
            before = await daemon.until_evidence(tenant.name, "chat", running=16.0 * SMALL, keep_warm_s=360.0)
            chat["spec"]["triggers"][0]["metadata"]["keep_warm"] = "7m"
            tenant.put(chat)
            after = await daemon.until_evidence(tenant.name, "chat", running=16.0 * SMALL, keep_warm_s=420.0)
    assert after["decided_at"] == before["decided_at"], "new state would have been decided again"
    assert after["replicas"] == SMALL


async def test_scale_target_changed_while_the_daemon_was_stopped_starts_from_the_replicas_it_has(
    config, deployments, tmp_path
):
    tenant, _ = deployments
    chat = tenant.scaled_object("chat", target="small", minimum=1, maximum=40, engine="vllm")
    with running(config, tmp_path / "log") as daemon:
        async with connected(daemon) as keda:
            await keda.until((SMALL, True), chat)
    chat["spec"]["scaleTargetRef"]["name"] = "large"
    tenant.put(chat)
    with running(config, tmp_path / "log-again") as daemon:
        async with connected(daemon) as keda, responses_to(keda, chat) as responses:
            await until_all_pods_are_scraped(daemon, tenant, LARGE)
    assert set(numbers(responses)) == {LARGE}


async def test_daemon_without_state_publishes_no_number_before_it_has_counted_the_replicas(new_cluster, page, tmp_path):
    with new_cluster() as cluster:
        tenant, config = cluster.tenant("unlisted"), tmp_path / "config.yaml"
        config.write_text(cluster.config().replace("at_start: 0s", "at_start: 1h"), encoding="utf-8")
        large = tenant.deployment("large", page.vllm(waiting=0, running=16), pods=1, wanted=LARGE)
        chat = tenant.scaled_object("chat", target="large", minimum=1, maximum=40, engine="vllm")
        cluster.fake.fail(DEPLOYMENTS, 503)
        with running(config, tmp_path / "log") as daemon:
            async with connected(daemon) as keda, responses_to(keda, chat) as responses:
                await until_scraped(large.pods[0])
                await daemon.sweeps(5)
                assert (await daemon.decision(tenant.name, "chat"))["reason"] == "unknown"
                cluster.fake.mend()
                await keda.until((LARGE, True), chat)
    assert set(numbers(responses)) == {LARGE}
