"""The HTTP server serves health, the Board as JSON and a list of paths, and reports a port in use."""

import json
import socket
from dataclasses import replace

import pytest

from exporter.model import WorkloadKey
from scaler.api.http.health import HealthState, render
from scaler.model import Decision, Evidence, Reason
from scaler.net import AddressInUseError

CHAT, CODE = WorkloadKey("ai", "chat"), WorkloadKey("ai", "code")


async def test_root_lists_the_paths(site):
    status, kind, text = await site.get("/")
    assert (status, kind) == (200, "text/plain; charset=utf-8")
    for path in ("/metrics", "/api/v1/board", "/api/v1/rows", "/livez", "/readyz"):
        assert path in text
        assert (await site.get(path))[0] in (200, 503)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/metrics/",
        "/api/v1/board/ai",
        "/api/v1/board/ai/chat/",
        "/page/",
        "/page/../server.py",
        "/api",
        "/../etc/passwd",
    ],
)
async def test_unknown_path_is_404(site, path):
    assert (await site.get(path))[0] == 404


async def test_board_is_json_with_the_servers_time(site):
    site.publish()
    site.now = 1003.0
    status, kind, text = await site.get("/api/v1/board")
    assert (status, kind) == (200, "application/json; charset=utf-8")
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (document["now"], document["at"], document["version"]) == (1003.0, 1000.0, 1)
    assert [each["workload"]["name"] for each in document["workloads"]] == ["chat", "code", "jobs"]
    assert [each["replicas"] for each in document["workloads"]] == [3, None, 0]
    assert document["workloads"][0] == json.loads(json.dumps(site.publisher.board.to_document()))["workloads"][0]


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/board", "/api/v1/board/ai/chat", "/api/v1/rows"])
async def test_every_answer_has_the_evidence_of_the_last_sweep(site, path):
    site.publish()
    site.newer = replace(site.publisher.get(CHAT), evidence=Evidence(waiting=4711.0))
    assert "4711" in (await site.get(path))[2]


@pytest.mark.parametrize("path", ["/", "/livez", "/readyz"])
async def test_health_waits_for_no_evidence(site, path):
    site.publish()
    site.newer = replace(site.publisher.get(CHAT), evidence=Evidence(waiting=4711.0))
    await site.get(path)
    assert site.publisher.get(CHAT).evidence.waiting == 30.0


async def test_empty_board_is_json(site):
    document = json.loads((await site.get("/api/v1/board"))[2])
    assert (document["version"], document["workloads"]) == (0, [])


async def test_board_of_one_workload_has_only_its_triggers(site):
    decode = WorkloadKey("ai", "chat", "decode")
    site.publisher.keep_only([CHAT, decode, CODE], at=site.now)
    site.publisher.publish([Decision(key, 2, True, Reason.WARM, 990.0) for key in (CHAT, decode, CODE)], at=site.now)
    status, _, text = await site.get("/api/v1/board/ai/chat")
    document = json.loads(text)
    assert (status, document["at"]) == (200, 1000.0)
    assert [each["workload"]["trigger"] for each in document["workloads"]] == ["", "decode"]
    status, kind, text = await site.get("/api/v1/board/ai/absent")
    assert (status, kind) == (404, "application/json; charset=utf-8")
    assert json.loads(text) == {"error": "no workload ai/absent on the Board"}


async def test_daemon_is_ready_only_after_the_first_tick(site):
    status, _, text = await site.get("/readyz?verbose")
    assert status == 503
    assert "[-] first-tick" in text
    assert text.endswith("not ok\n")
    assert (await site.get("/livez"))[0] == 200, "a starting daemon is live"
    site.health.last_tick_at = site.now
    assert (await site.get("/readyz"))[0::2] == (200, "ok\n")
    assert (await site.get("/readyz?verbose"))[
        2
    ] == "[+] ticks ok\n[+] answers ok\n[+] first-tick ok\n[+] drain ok\nok\n"


async def test_daemon_is_not_ready_before_the_first_list_of_scaled_objects(site):
    site.health.last_tick_at, site.health.unlisted = site.now, True
    status, _, text = await site.get("/readyz?verbose")
    assert (status, "[-] list: the cluster's ScaledObjects have not been listed yet" in text) == (503, True)
    site.health.unlisted = False
    assert (await site.get("/readyz"))[0] == 200


async def test_daemon_is_live_while_it_ticks(site):
    site.health.last_tick_at = site.now
    site.now += 10.0
    assert (await site.get("/livez"))[0::2] == (200, "ok\n")
    site.now += 1.0
    status, _, text = await site.get("/livez")
    assert status == 503
    assert text == "[-] ticks: no tick for 11 s (limit 10 s)\n"
    assert (await site.get("/readyz"))[0] == 503
    site.health.last_tick_at = site.now
    assert (await site.get("/livez"))[0] == 200


def test_limit_of_liveness_is_ten_slow_ticks():
    health = HealthState(tick_s=5.0, started_at=0.0, last_tick_at=100.0)
    assert health.live(150.0)["ticks"] is None
    assert health.live(150.1)["ticks"] is not None


def test_start_without_a_tick_is_not_live_forever():
    health = HealthState(tick_s=1.0, started_at=0.0)
    assert health.live(60.0)["ticks"] is None
    assert health.live(10_000.0)["ticks"] is not None


async def test_daemon_is_not_live_if_the_grpc_server_does_not_answer(site):
    for misses, status in ((0, 200), (1, 200), (2, 503), (3, 503), (0, 200)):
        site.health.last_tick_at, site.health.misses = site.now, misses
        assert [(await site.get(path))[0] for path in ("/livez", "/readyz")] == [status] * 2
    site.health.misses = 2
    text = "[-] answers: the gRPC server did not answer the last 2 checks (limit 2)\n"
    assert (await site.get("/livez"))[2] == text
    site.health.draining = True
    assert (await site.get("/livez"))[0] == 200, "a draining server may stop answering"


async def test_draining_daemon_is_live_and_not_ready(site):
    site.health.last_tick_at = site.now
    site.health.draining = True
    assert (await site.get("/readyz"))[0::2] == (503, "[-] drain: stopping\n")
    assert (await site.get("/livez"))[0] == 200


def test_health_names_the_failed_check_and_its_cause():
    checks = {"ticks": None, "drain": "stopping"}
    assert render(checks, verbose=False) == (503, "[-] drain: stopping\n")
    assert render(checks, verbose=True) == (503, "[+] ticks ok\n[-] drain: stopping\nnot ok\n")
    assert render({"ticks": None}, verbose=False) == (200, "ok\n")


async def test_port_in_use_is_an_error_with_the_address(site):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(AddressInUseError, match=rf"listen\.http: 127\.0\.0\.1:{port} is already in use"):
            await site.server(port=port).start()
    again = site.server(port=port)
    assert await again.start() == port, "the failed start must leave nothing behind"
    await again.stop()


async def test_foreign_address_is_no_address_in_use_error(site):
    with pytest.raises(OSError, match=r"192\.0\.2\.1") as refused:
        await site.server(host="192.0.2.1").start()
    assert not isinstance(refused.value, AddressInUseError)


async def test_unstarted_server_can_be_stopped(site):
    await site.server().stop()
