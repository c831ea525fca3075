"""`tidegate explain` fetches an explanation and prints it as tables or JSON."""

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from rich.console import Console

from exporter.model import ReplicaCount, WorkloadKey
from scaler.cli.client import Unanswered
from scaler.cli.explain import BadExplainRequest, ExplainRequest, explain_tables, fetch
from scaler.engine.decider import Decider
from scaler.explain.document import DecisionExplainer
from scaler.model import Board
from scaler.policy.columns import Signal, Spec
from scaler.workloads.spec import WorkloadSpec

KEYS = [WorkloadKey("ai", "chat"), WorkloadKey("ai", "chat", "decode"), WorkloadKey("research", "batch")]


@pytest.fixture(scope="module")
def decided():
    """Returns a decider of three workloads after one minute, and its Board."""
    spec = Spec(0, 8, ((Signal.WORK, 16.0),), pods=False)
    decider = Decider([WorkloadSpec(key, spec) for key in KEYS], interval_s=5.0, fresh_intervals=3.0, log_bytes=2**24)
    decisions = {}
    for second in range(0, 61, 5):
        decider.counted(KEYS[0], ReplicaCount(2, 2, 1000.0 + second))
        decisions |= {each.workload: each for each in decider.sweep(1000.0 + second)}
    return decider, Board(1, 1060.0, decisions)


@pytest.fixture
def document(decided):
    decider, board = decided
    explanation = DecisionExplainer(decider).explain(KEYS[0], board, 1060.4, None, None, None)
    return json.loads(json.dumps(explanation()))


def test_narrow_terminal_breaks_no_number_and_no_heading():
    columns = ["target", "of", "age", "waiting", "running", "held", "KV", "GPUs", "active", "counts"]
    cells = ["http://10.11.12.13:8000/metrics", "pods", "1.8 s", 12345, 154, None, 0.421, None, 0.125, "yes"]
    step = {"title": "What the targets report", "sentences": [], "table": {"columns": columns, "rows": [cells]}}
    shown = {
        "workload": {"namespace": "ai", "name": "chat"}, "summary": "", "chain": [step], "changes": [],
        "at": None, "now": 0.0, "log_begins_at": None, "follows": None,
    }  # fmt: skip
    out = io.StringIO()
    explain_tables(shown, Console(file=out, width=80, force_terminal=True, color_system=None))
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert columns in lines
    assert any({"12345", "154", "0.421", "0.125", "yes"} <= set(line) for line in lines)
    assert max(map(len, out.getvalue().splitlines())) <= 80


@pytest.fixture
def daemon(decided):
    """Responds like the daemon; `daemon.queries` are the received queries."""
    decider, board = decided

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            self.server.queries.append(query)
            _, _, _, what, *names = url.path.split("/")
            key = WorkloadKey(*names, query.get("trigger", "")) if names else None
            at = float(query["at"]) if query.get("at", "").replace(".", "").isdigit() else None
            explanation = (
                None if key is None else DecisionExplainer(decider).explain(key, board, 1060.4, at, None, None)
            )
            if what == "board":
                self.respond(200, {"now": 1060.4, **board.to_document()})
            elif "at" in query and at is None:
                self.respond(400, {"error": "at: must be a moment"})
            elif explanation is None:
                self.respond(404, {"error": f"{key}: no such workload on the Board"})
            else:
                self.respond(200, explanation())

        def respond(self, status, document):
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.queries, server.url = [], f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def shown(document, width=80, terminal=True):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None, legacy_windows=False)
    explain_tables(document, console)
    return out.getvalue()


class TestFetch:
    def test_fetch_returns_the_daemons_document(self, daemon, document):
        assert fetch(ExplainRequest("ai/chat", server=daemon.url), 0.0) == document
        assert daemon.queries == [{}]

    def test_fetch_sends_trigger_and_time(self, daemon):
        fetch(ExplainRequest("ai/chat/decode", at="1030", server=daemon.url), 0.0)
        fetch(ExplainRequest("ai/chat", at="2m30s", server=daemon.url), 1180.0)
        assert daemon.queries == [{"trigger": "decode", "at": "1030"}, {"at": "1030.000"}]

    @pytest.mark.parametrize(
        ("workload", "message"),
        [
            ("ai/chta", "ai/chta: no such workload on the Board. Is it ai/chat or ai/chat/decode?"),
            ("prod/batch", "prod/batch: no such workload on the Board. Is it research/batch?"),
            ("x/y", "x/y: no such workload on the Board. There are 3, such as ai/chat, ai/chat/decode, research/batch"),
            ("chat", "chat: must be NAMESPACE/NAME, or NAMESPACE/NAME/TRIGGER for a further trigger"),
            ("a/b/c/d", "a/b/c/d: must be NAMESPACE/NAME, or NAMESPACE/NAME/TRIGGER for a further trigger"),
        ],
    )
    def test_unknown_workload_error_suggests_similar_names(self, daemon, workload, message):
        with pytest.raises(BadExplainRequest) as bad:
            fetch(ExplainRequest(workload, server=daemon.url), 0.0)
        assert str(bad.value) == message

    def test_invalid_time_shows_the_daemons_error(self, daemon):
        with pytest.raises(BadExplainRequest, match="at: must be a moment"):
            fetch(ExplainRequest("ai/chat", at="yesterday", server=daemon.url), 0.0)

    def test_unreachable_daemon_has_a_hint(self):
        with pytest.raises(Unanswered, match=r"Connection refused.*kubectl -n tidegate port-forward"):
            fetch(ExplainRequest("ai/chat", server="http://127.0.0.1:1"), 0.0)


class TestTables:
    def test_tables_fit_eighty_columns(self, document):
        text = shown(document)
        assert max(map(len, text.splitlines())) <= 80
        for part in ("ai/chat", "What the targets report", "Bounds", "Published replicas"):
            assert part in text

    def test_row_in_a_pipe_is_one_line_without_colours(self, document):
        text = shown(document, terminal=False)
        assert "\x1b" not in text
        assert document["summary"] in text

    def test_step_of_a_newer_version_is_printed(self, document):
        table = {"columns": ["within s", "replicas"], "rows": [[15, None], [30.5, True]]}
        document["chain"].append({"step": "weather", "title": "The weather", "sentences": ["Rain."], "table": table})
        text = shown(document)
        assert "The weather" in text
        assert "Rain." in text
        assert "30.5" in text

    def test_control_characters_are_not_printed(self, document):
        document["summary"] = "3 replicas\x1b[31m\x07"
        document["chain"][0]["sentences"] = ["a\x1b]0;b"]
        document["follows"] = "x\x1b[2J"
        text = shown(document, terminal=False)
        assert not set(text) & {"\x1b", "\x07"}

    def test_explanation_before_the_first_decision_is_one_sentence(self, document):
        nothing = {**document, "at": None, "chain": [], "changes": [], "inputs": None, "log_begins_at": None}
        assert shown({**nothing, "summary": "Nothing has been decided yet"}).split("\n")[0].endswith("decided yet")


class TestCommand:
    def test_command_prints_the_steps_or_the_document(self, tidegate, daemon, document):
        tables = tidegate("explain", "ai/chat", "--server", daemon.url)
        assert (tables.returncode, tables.stdout.split("\n")[0][:7]) == (0, "ai/chat")
        saved = tidegate("explain", "ai/chat", "--server", daemon.url, "-o", "json")
        assert (saved.returncode, json.loads(saved.stdout)) == (0, document)

    @pytest.mark.parametrize(
        ("arguments", "status", "message"),
        [
            ((), 2, "Missing argument 'NAMESPACE/NAME'"),
            (("ai/chat", "--server", "http://127.0.0.1:1"), 1, "port-forward"),
        ],
    )
    def test_wrong_usage_has_a_hint(self, tidegate, arguments, status, message):
        done = tidegate("explain", *arguments)
        assert (done.returncode, message in done.stderr) == (status, True)
