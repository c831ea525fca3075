"""A daemon that runs, as its own pages speak of it."""

import asyncio
import time

import pytest

from scaler.cli.doctor.daemon import examine, is_tidegate, of_numbers, read

WELL = """\
tidegate_build_info{version="0.1.0",python="3.12.3"} 1.0
tidegate_config_last_reload_successful 1.0
tidegate_snapshot_age_seconds 4.0
tidegate_snapshot_directory_owned 1.0
tidegate_leader 1.0
tidegate_kubernetes_known{resource="pods"} 1.0
tidegate_scrape_up{target="http://10.0.0.7:8000/metrics"} 1.0
tidegate_events_dropped_total{why="budget"} 9.0
"""
READY = "[+] ticks ok\n[+] first-tick ok\nok\n"


@pytest.fixture
def ask(pages):
    """`ask(metrics, ready, status)`: the checks of a daemon that says this."""

    async def asked(metrics=WELL, ready=READY, status=200):
        pages.at("/metrics", metrics)
        pages.at("/readyz", ready, status)
        return await asyncio.to_thread(examine, f"http://127.0.0.1:{pages.port}", time.time)

    return asked


async def test_where_all_is_well_that_is_said(ask):
    checks = await ask()
    assert {check.status for check in checks} == {"ok"}
    assert {check.name.split(" http")[0] for check in checks} == {
        "daemon",
        "clock of the daemon",
        "daemon's configuration",
        "daemon's snapshots",
        "daemon's peers",
    }


@pytest.mark.parametrize(
    ("well", "ill", "name", "status"),
    [
        ("successful 1.0", "successful 0.0", "daemon's configuration", "fail"),
        ("age_seconds 4.0", "age_seconds 400.0", "daemon's snapshots", "fail"),
        ("directory_owned 1.0", "directory_owned 0.0", "daemon's snapshots", "warn"),
        ("tidegate_leader 1.0", "tidegate_leader 0.0", "daemon's peers", "warn"),
        ("leader 1.0", "leader 0.0\ntidegate_peer_board_age_seconds 60.0", "daemon's peers", "warn"),
        ("leader 1.0", "leader 0.0\ntidegate_peer_board_age_seconds 0.4", "daemon's peers", "ok"),
        ('"pods"} 1.0', '"pods"} 0.0', "daemon's view of Kubernetes", "fail"),
        ('metrics"} 1.0', 'metrics"} 0.0', "daemon's pages", "warn"),
        ('"budget"} 9.0', '"refused"} 9.0', "daemon's Events", "warn"),
    ],
)
def test_each_number_that_warns_is_told(well, ill, name, status):
    assert well in WELL
    checks = {check.name: check.status for check in of_numbers(read(WELL.replace(well, ill)), None)}
    assert checks[name] == status
    assert sum(each != "ok" for each in checks.values()) == (status != "ok")


def test_a_snapshot_is_as_old_as_its_interval_lets_it_be():
    numbers = read(WELL.replace("age_seconds 4.0", "age_seconds 400.0"))
    assert [check.status for check in of_numbers(numbers, 300.0) if check.name == "daemon's snapshots"] == ["ok"]


async def test_one_that_is_not_ready_says_why(ask):
    checks = await ask(ready="[-] first-tick: compiling and scraping for the first time\n", status=503)
    assert (checks[0].status, checks[0].said) == (
        "fail",
        "not ready: first-tick: compiling and scraping for the first time",
    )


async def test_somebody_else_at_that_address_is_no_tidegate(ask):
    for metrics in ("python_info 1.0\n", "<!doctype html>", ""):
        [only] = await ask(metrics)
        assert only.status == "fail"


def test_where_nobody_listens_that_is_said():
    [only] = examine("http://127.0.0.1:1", time.time)
    assert (only.status, only.said) == ("fail", "no answer (ConnectionError)")
    assert not is_tidegate("http://127.0.0.1:1")
