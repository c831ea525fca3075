"""One provider per cluster: who that is, is said once for each change, and never guessed."""

import asyncio
from random import Random

import pytest
import structlog
from prometheus_client import CollectorRegistry

from exporter.kubernetes.auth import ServiceReference
from exporter.kubernetes.client import connect
from scaler.api.metrics_api import registration
from scaler.api.metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from scaler.api.metrics_api.registration import RegistrationState, standing
from scaler.metrics import SelfMetrics
from tests.fakes.kubernetes import write_kubeconfig

OURS = ServiceReference("tidegate", "tidegate")
KEDA_KEYS = ServiceReference("keda", "keda-operator-metrics-apiserver")
EXTERNAL = f"v1beta1.{EXTERNAL_GROUP}"


class Lookout:
    """The look-out as it runs, what it said, and the gauge."""

    def __init__(self, clock, kubernetes, log):
        self.clock, self.kubernetes, self._log = clock, kubernetes, log
        self._registry = CollectorRegistry()
        self.own = SelfMetrics(self._registry)

    def register(self, name, holder):
        self.kubernetes.api_services[name] = {"service": holder._asdict()} if holder else {"group": "g"}

    async def look_again(self, seconds=60.0):
        self.clock.advance(seconds)
        await asyncio.sleep(0)
        await self.clock.asleep()

    def said(self):
        """(level, APIService, what names somebody) of each line since it was asked last."""
        lines = [
            (line["log_level"], line["api_service"], line.get("holder") or line.get("problem")) for line in self._log
        ]
        self._log.clear()
        return lines

    def gauge(self, group=EXTERNAL_GROUP, version="v1beta1"):
        return self._registry.get_sample_value("tidegate_metrics_api_registered", {"group": group, "version": version})


@pytest.fixture
async def look(tmp_path, clock, kubernetes):
    """`await look(groups, own)`: a look-out that has looked once."""
    client = await connect(str(write_kubeconfig(tmp_path / "kubeconfig", kubernetes.url)), None, Random(1))
    tasks = []

    with structlog.testing.capture_logs() as log:

        async def start(*registered, groups=(EXTERNAL_GROUP,), own=OURS):
            lookout = Lookout(clock, kubernetes, log)
            for name, holder in registered:
                lookout.register(name, holder)
            told = lookout.own.observe_registration
            tasks.append(asyncio.create_task(registration.follow(client, clock, groups, own, told)))
            await clock.asleep()
            return lookout

        yield start
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await client.close()


@pytest.mark.parametrize(
    ("holder", "own", "expected"),
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
def test_a_group_is_ours_only_if_its_service_is_ours(holder, own, expected):
    assert expected is standing(holder, own)


async def test_our_own_registration_is_logged_once_and_exposed(look):
    lookout = await look((EXTERNAL, OURS))
    assert lookout.said() == [("info", EXTERNAL, None)]
    assert lookout.gauge() == 1.0
    await lookout.look_again()
    assert lookout.said() == []


async def test_another_holder_is_an_error_that_names_it_and_what_to_do(look):
    lookout = await look((EXTERNAL, KEDA_KEYS))
    [line] = list(lookout._log)
    assert line["log_level"] == "error"
    assert line["holder"] == "Service keda/keda-operator-metrics-apiserver"
    assert "mode: keda" in line["do"]
    assert "remove that APIService" in line["do"]
    assert lookout.gauge() == 0.0


async def test_an_unregistered_group_is_one_warning_until_it_is_registered(look):
    lookout = await look()
    assert lookout.said() == [("warning", EXTERNAL, None)]
    assert lookout.gauge() == 0.0
    await lookout.look_again()
    assert lookout.said() == []
    lookout.register(EXTERNAL, OURS)
    await lookout.look_again()
    assert lookout.said() == [("info", EXTERNAL, None)]
    assert lookout.gauge() == 1.0


async def test_a_lost_registration_and_each_new_holder_are_logged(look):
    lookout = await look((EXTERNAL, OURS))
    lookout.said()
    for holder in (KEDA_KEYS, ServiceReference("monitoring", "adapter")):
        lookout.register(EXTERNAL, holder)
        await lookout.look_again()
        assert lookout.said() == [("error", EXTERNAL, str(holder))]
        assert lookout.gauge() == 0.0


async def test_without_its_own_service_name_the_registration_is_unknown(look):
    lookout = await look((EXTERNAL, KEDA_KEYS), own=None)
    assert lookout.said() == [("info", EXTERNAL, str(KEDA_KEYS))]
    assert lookout.gauge() is None


async def test_an_unreadable_registration_is_logged_once_and_unknown(look, kubernetes):
    kubernetes.fail("APIService", 403)
    lookout = await look((EXTERNAL, OURS))
    [(level, name, problem)] = lookout.said()
    assert (level, name) == ("warning", EXTERNAL)
    assert f'resourceNames ["{EXTERNAL}"]' in problem
    assert lookout.gauge() is None
    asked = len(kubernetes.shown)
    await lookout.look_again(5.0)  # nobody changes RBAC within seconds
    assert len(kubernetes.shown) == asked
    await lookout.look_again(55.0)
    assert len(kubernetes.shown) == asked + 1
    assert lookout.said() == []


async def test_an_api_server_that_does_not_answer_is_unknown_and_is_asked_again_soon(look, kubernetes):
    lookout = await look((EXTERNAL, OURS))
    lookout.said()
    kubernetes.fail("APIService", 500)
    await lookout.look_again()
    assert [level for level, *_ in lookout.said()] == ["warning"]
    assert lookout.gauge() is None
    kubernetes.mend()
    await lookout.look_again(5.0)
    assert lookout.said() == [("info", EXTERNAL, None)]
    assert lookout.gauge() == 1.0


async def test_each_version_of_each_group_that_is_on_is_looked_at_and_no_other(look):
    both = [f"{version}.{CUSTOM_GROUP}" for version in ("v1beta2", "v1beta1")]
    lookout = await look((EXTERNAL, KEDA_KEYS), (both[0], OURS), (both[1], KEDA_KEYS), groups=(CUSTOM_GROUP,))
    assert lookout.said() == [("info", both[0], None), ("error", both[1], str(KEDA_KEYS))]
    assert [lookout.gauge(), lookout.gauge(CUSTOM_GROUP, "v1beta2"), lookout.gauge(CUSTOM_GROUP)] == [None, 1.0, 0.0]
