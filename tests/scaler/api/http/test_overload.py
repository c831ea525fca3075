"""Under overload the live page and its API are refused, and probes and metrics are not."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.api.http.overload import BEGINS_S, ENDS_S, PROBE_S, LoopLag

SHED = ["/", "/api/v1/board", "/api/v1/rows", "/page/page.js"]
SERVED = ["/metrics", "/livez", "/readyz", "/readyz?verbose"]


class LateClock:
    """Sleeps end as late as the test says, one after the other; then they end no more."""

    def __init__(self, *late):
        self.now, self._late = 50.0, list(late)

    def time(self):
        return self.now

    async def sleep(self, seconds):
        if not self._late:
            raise asyncio.CancelledError
        self.now += seconds + self._late.pop(0)


async def watched(lag, *late):
    clock = LateClock(*late)
    with pytest.raises(asyncio.CancelledError):
        await lag.watch(clock.time, clock.sleep)
    return lag


def refused(site):
    return site.registry.get_sample_value("tidegate_http_requests_shed_total")


async def test_worked_example_of_the_module():
    lag = await watched(LoopLag(), 1.0)
    assert lag.mean_s == pytest.approx(0.1)
    assert not lag.overloaded
    await watched(lag, 1.0, 1.0)
    assert lag.mean_s == pytest.approx(0.271)
    assert lag.overloaded
    assert (await watched(lag, *16 * [0.0])).overloaded
    assert not (await watched(lag, 0.0)).overloaded


@pytest.mark.parametrize("path", SHED)
async def test_overload_refuses_the_page_and_its_api_until_it_is_over(site, path):
    site.publish()
    await watched(site.lag, *10 * [1.0])
    status, kind, text = await site.get(path)
    assert (status, kind) == (503, "application/json; charset=utf-8")
    assert "the event loop is 0.65 s late" in json.loads(text)["error"]
    assert refused(site) == 1.0
    await watched(site.lag, *30 * [0.0])
    assert (await site.get(path))[0] != 503
    assert refused(site) == 1.0


async def test_refused_client_is_told_when_to_ask_again(site):
    await watched(site.lag, *10 * [1.0])
    async with site.session() as session, session.get(f"{site.url}/") as response:
        assert response.headers["Retry-After"] == "5"


@pytest.mark.parametrize("path", SERVED)
async def test_overload_refuses_neither_probes_nor_monitoring(site, path):
    site.health.last_tick_at = site.now
    await watched(site.lag, *10 * [1.0])
    assert (await site.get(path))[0] == 200
    assert refused(site) == 0.0


async def test_single_stall_refuses_nothing():
    assert not (await watched(LoopLag(), 2.0, 0.0, 0.0)).overloaded


@given(st.lists(st.floats(-1.0, 5.0), max_size=60))
def test_page_is_refused_only_between_the_two_bounds_of_the_mean(late):
    lag = LoopLag()
    for seconds in late:
        before = lag.overloaded
        lag.observe(seconds)
        assert lag.mean_s >= 0.0
        if lag.mean_s > BEGINS_S or lag.mean_s <= ENDS_S:
            assert lag.overloaded == (lag.mean_s > BEGINS_S)
        else:
            assert lag.overloaded == before


def test_sleep_of_a_probe_is_short_against_the_bounds():
    assert PROBE_S < BEGINS_S
