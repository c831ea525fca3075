"""Tests that credentials are sent to Prometheus and shown nowhere else."""

from __future__ import annotations

import base64
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from exporter.model import Credentials, WorkloadKey
from scaler.cli.replay.history import HistoryRequest, from_prometheus
from scaler.cli.replay.run import BadReplayRequest, HistoryOptions, ReplayRequest, replayed
from scaler.replay.traces import BadLoad

EMPTY = {"status": "success", "data": {"resultType": "matrix", "result": []}}


@pytest.fixture
def guarded():
    """A server with an empty Prometheus API; `.authorizations`: sent by its clients, `.status`: of its responses."""

    class ReplayRequest(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.server.authorizations.append(self.headers["Authorization"])
            body = json.dumps(EMPTY).encode()
            self.send_response(self.server.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the name in the library

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), ReplayRequest) as server:
        server.authorizations, server.status = [], 200
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def past(url, **more):
    return HistoryRequest(url, WorkloadKey("ai", "chat"), 1_700_000_000.0, 1_700_003_600.0, **more)


async def test_user_in_a_url_is_sent_and_never_shown(guarded):
    address = f"127.0.0.1:{guarded.server_port}"
    with pytest.raises(BadLoad, match="no series of ai/chat") as bad:
        await from_prometheus(past(f"http://me:secret@{address}"))

    assert set(guarded.authorizations) == {"Basic " + base64.b64encode(b"me:secret").decode()}
    assert str(bad.value).startswith(f"http://{address}: ")
    assert "secret" not in str(bad.value)


async def test_token_is_read_from_its_file(guarded, tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with pytest.raises(BadLoad, match="no series"):
        await from_prometheus(
            past(f"http://127.0.0.1:{guarded.server_port}", access=Credentials(bearer_file=str(token)))
        )

    assert set(guarded.authorizations) == {"Bearer s3cret"}


@pytest.mark.parametrize("status", [401, 500])
async def test_no_refusal_contains_the_password(guarded, status):
    guarded.status = status
    with pytest.raises(BadLoad, match=str(status)) as bad:
        await from_prometheus(past(f"http://me:secret@127.0.0.1:{guarded.server_port}"))

    assert "secret" not in str(bad.value)


@pytest.mark.parametrize("url", ["http://me:secret@[1", "ftp//me:secret@there", "http://me:secret@127.0.0.1:99999"])
def test_invalid_url_is_refused_without_its_password(url):
    with pytest.raises(BadReplayRequest) as bad:
        replayed(ReplayRequest([], history=HistoryOptions(url, "ai/chat", "1h", None)))

    assert "--prometheus" in str(bad.value)
    assert "secret" not in str(bad.value)


def test_unreadable_token_is_reported_with_its_file(tmp_path, guarded):
    url, lost = f"http://127.0.0.1:{guarded.server_port}", str(tmp_path / "lost")
    with pytest.raises(BadReplayRequest, match="lost"):
        replayed(ReplayRequest([], history=HistoryOptions(url, "ai/chat", "1h", None, lost)))

    assert guarded.authorizations == []
