"""Each change of an API group's provider is logged once; an unreadable provider is unknown."""

import asyncio
from random import Random

import pytest
import structlog
from prometheus_client import CollectorRegistry

from exporter.kubernetes.auth import ServiceReference
from exporter.kubernetes.client import connect
from scaler.api.metrics_api import registration
from scaler.api.metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from scaler.api.metrics_api.registration import RegistrationState, registration_state
from scaler.metrics import SelfMetrics
from tests.fakes.kubernetes import write_kubeconfig

OURS = ServiceReference("tidegate", "tidegate")
KEDA_KEYS = ServiceReference("keda", "keda-operator-metrics-apiserver")
EXTERNAL = f"v1beta1.{EXTERNAL_GROUP}"


class Follower:
    """Holds the running follower of APIServices, its log and its gauge."""

    def __init__(self, clock, kubernetes, log):
        self.clock, self.kubernetes, self._log = clock, kubernetes, log
        self._registry = CollectorRegistry()
        self.self_metrics = SelfMetrics(self._registry)

    def register(self, name, holder):
        self.kubernetes.api_services[name] = {"service": holder._asdict()} if holder else {"group": "g"}

    async def poll_again(self, seconds=60.0):
        self.clock.advance(seconds)
        await self.clock.asleep()

    def new_lines(self):
        """Returns (level, APIService, holder or problem) of each line since the last call."""
        lines = [
            (line["log_level"], line["api_service"], line.get("holder") or line.get("problem")) for line in self._log
        ]
        self._log.clear()
        return lines

    def gauge(self, group=EXTERNAL_GROUP, version="v1beta1"):
        return self._registry.get_sample_value("tidegate_metrics_api_registered", {"group": group, "version": version})


@pytest.fixture
async def follow(tmp_path, clock, kubernetes):
    """`await follow(*registered, groups, service)`: a follower that has read the APIServices once."""
    client = await connect(str(write_kubeconfig(tmp_path / "kubeconfig", kubernetes.url)), None, Random(1))
    tasks = []

    with structlog.testing.capture_logs() as log:

        async def start(*registered, groups=(EXTERNAL_GROUP,), service=OURS):
            follower = Follower(clock, kubernetes, log)
            for name, holder in registered:
                follower.register(name, holder)
            observe = follower.self_metrics.observe_registration
            tasks.append(asyncio.create_task(registration.follow(client, clock, groups, service, observe)))
            await clock.asleep()
            return follower

        yield start
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await client.close()


@pytest.mark.parametrize(
    ("holder", "service", "expected"),
    [
        (OURS, OURS, RegistrationState.OURS),
        (KEDA_KEYS, OURS, RegistrationState.OTHER),
        (ServiceReference("other", "tidegate"), OURS, RegistrationState.OTHER),
        (ServiceReference(), OURS, RegistrationState.OTHER),
        (None, OURS, RegistrationState.NONE),
        (None, None, RegistrationState.NONE),
        (KEDA_KEYS, None, RegistrationState.HELD),
    ],
)
def test_group_is_ours_only_if_its_service_is_ours(holder, service, expected):
    assert expected is registration_state(holder, service)


async def test_registration_of_our_service_is_logged_once_and_exposed(follow):
    follower = await follow((EXTERNAL, OURS))
    assert follower.new_lines() == [("info", EXTERNAL, None)]
    assert follower.gauge() == 1.0
    await follower.poll_again()
    assert follower.new_lines() == []


async def test_other_holder_is_an_error_with_its_name_and_a_remedy(follow):
    follower = await follow((EXTERNAL, KEDA_KEYS))
    [line] = list(follower._log)
    assert line["log_level"] == "error"
    assert line["holder"] == "Service keda/keda-operator-metrics-apiserver"
    assert "mode: keda" in line["do"]
    assert "remove that APIService" in line["do"]
    assert follower.gauge() == 0.0


async def test_unregistered_group_is_one_warning_until_it_is_registered(follow):
    follower = await follow()
    assert follower.new_lines() == [("warning", EXTERNAL, None)]
    assert follower.gauge() == 0.0
    await follower.poll_again()
    assert follower.new_lines() == []
    follower.register(EXTERNAL, OURS)
    await follower.poll_again()
    assert follower.new_lines() == [("info", EXTERNAL, None)]
    assert follower.gauge() == 1.0


async def test_lost_registration_and_each_new_holder_are_logged(follow):
    follower = await follow((EXTERNAL, OURS))
    follower.new_lines()
    for holder in (KEDA_KEYS, ServiceReference("monitoring", "adapter")):
        follower.register(EXTERNAL, holder)
        await follower.poll_again()
        assert follower.new_lines() == [("error", EXTERNAL, str(holder))]
        assert follower.gauge() == 0.0


async def test_registration_is_unknown_without_a_configured_service(follow):
    follower = await follow((EXTERNAL, KEDA_KEYS), service=None)
    assert follower.new_lines() == [("info", EXTERNAL, str(KEDA_KEYS))]
    assert follower.gauge() is None


async def test_unreadable_registration_is_logged_once_and_unknown(follow, kubernetes):
    kubernetes.fail("APIService", 403)
    follower = await follow((EXTERNAL, OURS))
    [(level, name, problem)] = follower.new_lines()
    assert (level, name) == ("warning", EXTERNAL)
    assert f'resourceNames ["{EXTERNAL}"]' in problem
    assert follower.gauge() is None
    requests = len(kubernetes.shown)
    await follower.poll_again(5.0)  # RBAC does not change within seconds
    assert len(kubernetes.shown) == requests
    await follower.poll_again(55.0)
    assert len(kubernetes.shown) == requests + 1
    assert follower.new_lines() == []


async def test_registration_is_unknown_during_an_api_server_error_and_is_retried_soon(follow, kubernetes):
    follower = await follow((EXTERNAL, OURS))
    follower.new_lines()
    kubernetes.fail("APIService", 500)
    await follower.poll_again()
    assert [level for level, *_ in follower.new_lines()] == ["warning"]
    assert follower.gauge() is None
    kubernetes.mend()
    await follower.poll_again(5.0)
    assert follower.new_lines() == [("info", EXTERNAL, None)]
    assert follower.gauge() == 1.0


async def test_only_versions_of_enabled_groups_are_read(follow):
    both = [f"{version}.{CUSTOM_GROUP}" for version in ("v1beta2", "v1beta1")]
    follower = await follow((EXTERNAL, KEDA_KEYS), (both[0], OURS), (both[1], KEDA_KEYS), groups=(CUSTOM_GROUP,))
    assert follower.new_lines() == [("info", both[0], None), ("error", both[1], str(KEDA_KEYS))]
    assert [follower.gauge(), follower.gauge(CUSTOM_GROUP, "v1beta2"), follower.gauge(CUSTOM_GROUP)] == [None, 1.0, 0.0]
