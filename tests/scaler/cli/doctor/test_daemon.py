"""`tidegate doctor` checks a running daemon through its endpoints."""

import asyncio
import time

import pytest

from scaler.cli.doctor.daemon import check_samples, examine, is_tidegate, parse_samples

WELL = """\
tidegate_build_info{version="0.1.0",python="3.12.3"} 1.0
tidegate_config_last_reload_successful 1.0
tidegate_checkpoint_age_seconds 4.0
tidegate_checkpoint_directory_owned 1.0
tidegate_leader 1.0
tidegate_kubernetes_synced{resource="pods"} 1.0
tidegate_scrape_up{target="http://10.0.0.7:8000/metrics"} 1.0
tidegate_scrapes_total{target="http://10.0.0.7:8000/metrics"} 1000.0
tidegate_scrapes_late_total 3.0
tidegate_scrapes_skipped_total{reason="overload"} 1.0
tidegate_scrapes_skipped_total{reason="slow_target"} 0.0
tidegate_events_dropped_total{why="budget"} 9.0
"""
READY = "[+] ticks ok\n[+] first-tick ok\nok\n"


@pytest.fixture
def ask(pages):
    """`ask(metrics, ready, status)`: the checks of a daemon with these responses."""

    async def run(metrics=WELL, ready=READY, status=200):
        pages.at("/metrics", metrics)
        pages.at("/readyz", ready, status)
        return await asyncio.to_thread(examine, f"http://127.0.0.1:{pages.port}", time.time)

    return run


async def test_all_checks_pass_for_a_good_daemon(ask):
    checks = await ask()
    assert {check.status for check in checks} == {"ok"}
    assert {check.name.split(" http")[0] for check in checks} == {
        "daemon",
        "clock of the daemon",
        "daemon's configuration",
        "daemon's checkpoint",
        "daemon's replication",
    }


@pytest.mark.parametrize(
    ("well", "ill", "name", "status"),
    [
        ("successful 1.0", "successful 0.0", "daemon's configuration", "fail"),
        ("age_seconds 4.0", "age_seconds 400.0", "daemon's checkpoint", "fail"),
        ("directory_owned 1.0", "directory_owned 0.0", "daemon's checkpoint", "warn"),
        ("tidegate_leader 1.0", "tidegate_leader 0.0", "daemon's replication", "warn"),
        ("leader 1.0", "leader 0.0\ntidegate_peer_board_age_seconds 60.0", "daemon's replication", "warn"),
        ("leader 1.0", "leader 0.0\ntidegate_peer_board_age_seconds 0.4", "daemon's replication", "ok"),
        ('"pods"} 1.0', '"pods"} 0.0', "daemon's view of Kubernetes", "fail"),
        ('metrics"} 1.0', 'metrics"} 0.0', "daemon's targets", "warn"),
        ("late_total 3.0", "late_total 30.0", "daemon's scrapes", "warn"),
        ('"overload"} 1.0', '"overload"} 30.0', "daemon's scrapes", "warn"),
        ('"slow_target"} 0.0', '"slow_target"} 30.0', "daemon's scrapes", "warn"),
        ('"budget"} 9.0', '"refused"} 9.0', "daemon's Events", "warn"),
    ],
)
def test_each_bad_sample_is_a_failure_or_warning(well, ill, name, status):
    assert well in WELL
    checks = {check.name: check.status for check in check_samples(parse_samples(WELL.replace(well, ill)), None)}
    assert checks[name] == status
    assert sum(each != "ok" for each in checks.values()) == (status != "ok")


def test_checkpoint_may_be_three_intervals_old():
    samples = parse_samples(WELL.replace("age_seconds 4.0", "age_seconds 400.0"))
    assert [check.status for check in check_samples(samples, 300.0) if check.name == "daemon's checkpoint"] == ["ok"]


async def test_daemon_that_is_not_ready_is_a_failure_with_the_reason(ask):
    checks = await ask(ready="[-] first-tick: compiling and scraping for the first time\n", status=503)
    assert (checks[0].status, checks[0].result) == (
        "fail",
        "not ready: first-tick: compiling and scraping for the first time",
    )


async def test_another_program_at_the_address_is_a_failure(ask):
    for metrics in ("python_info 1.0\n", "<!doctype html>", ""):
        [only] = await ask(metrics)
        assert only.status == "fail"


def test_connection_failure_is_a_failure():
    [only] = examine("http://127.0.0.1:1", time.time)
    assert (only.status, only.result) == ("fail", "no response (ConnectionError)")
    assert not is_tidegate("http://127.0.0.1:1")
