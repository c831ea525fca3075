"""Only known Host headers are answered, so that DNS rebinding reads nothing and monitoring always works."""

import json

import pytest

from scaler.api.http.hosts import is_allowed

FOREIGN = [
    "evil.example", "evil.example:8080", "127.0.0.1.nip.io", "tidegate.dev", "localhost.evil.example",
    "svc.evil.example", "tidegate.notsvc", "tidegate.notlocalhost",
    "tidegate.ai.svc.evil.example", "evilsvc.example", "127.0.0.1@evil.example", "[::1].evil.example", "", ":8080", " ",
    "a b", "a/b", "\xff", "localhost:8080:1", "evil.example.",
]  # fmt: skip
ALLOWED = [
    "127.0.0.1", "127.0.0.1:8080", "10.0.0.7:8080", "[::1]", "[fd00::7]:8080", "localhost", "localhost:8080",
    "LOCALHOST",
    "localhost.", "page.localhost", "tidegate", "tidegate-7d4-x2x:8080", "tidegate.ai.svc", "tidegate.ai.svc:8080",
    "tidegate.ai.svc.cluster.local", "10-0-0-7.ai.pod.cluster.local",
]  # fmt: skip
NEVER_CHECKED = ["/metrics", "/livez", "/readyz", "/readyz?verbose"]
CHECKED = ["/", "/api/v1/board", "/api/v1/board/ai/chat", "/api/v1/rows", "/page/page.js", "/nothing"]


@pytest.mark.parametrize("host", FOREIGN)
def test_foreign_host_is_not_allowed(host):
    assert not is_allowed(host, ())


@pytest.mark.parametrize("host", ALLOWED)
def test_address_or_unregistrable_name_is_allowed(host):
    assert is_allowed(host, ())


@pytest.mark.parametrize("host", ["tidegate.example.com", "Tidegate.Example.com:443"])
def test_configured_host_is_allowed(host):
    assert is_allowed(host, {"tidegate.example.com"})
    assert not is_allowed(f"x.{host}", {"tidegate.example.com"})


@pytest.mark.parametrize("path", CHECKED)
async def test_rebound_name_reads_neither_page_nor_api(site, path):
    site.publish()
    status, kind, text = await site.get(path, Host="evil.example:8080")
    assert (status, kind) == (421, "application/json; charset=utf-8")
    message = json.loads(text)["error"]
    assert "got 'evil.example:8080'" in message
    assert "listen.http_hosts" in message
    assert "chat" not in text


@pytest.mark.parametrize("path", NEVER_CHECKED)
async def test_kubelet_and_prometheus_are_answered_whatever_host_they_send(site, path):
    site.health.last_tick_at = site.now
    for host in ("evil.example", "tidegate.monitoring:8080", ""):
        assert (await site.get(path, Host=host))[0] == 200


@pytest.mark.parametrize("path", [*NEVER_CHECKED, *CHECKED])
async def test_every_response_forbids_sniffing_and_frames(site, path):
    async with site.session() as session:
        for host in ("localhost", "evil.example"):
            async with session.get(site.url + path, headers={"Host": host}) as response:
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
