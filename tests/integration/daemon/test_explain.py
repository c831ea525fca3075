"""The explain document of a running daemon, also for decisions before a reload."""

import json
import signal

import pytest

from exporter.model import WorkloadKey
from tests.fakes.waiting import until
from tests.scaler.explain.recompute import differences, read_inputs

CHAT = WorkloadKey("ai", "chat")


@pytest.fixture
def workload(targets):
    def section(work):
        return (
            f'  - {{namespace: ai, name: chat, engine: vllm, pods: {{url: "{targets.url("engine")}"}},\n'
            f"     objectives: {{work: {work}}}, smoothing: {{up: 0s, down: 0s}}}}\n"
        )

    return section


async def test_explain_document_of_a_decision_survives_a_reload(daemon, targets, workload, vllm):
    targets["engine"].body = vllm(running=20, finished=1)
    async with daemon(workload(16)) as running:
        await running.until_metric('tidegate_replicas{namespace="ai",workload="chat"} 2')

        async def explain(query=""):
            status, text = await running.get(f"/api/v1/explain/ai/chat{query}")
            assert status == 200
            return json.loads(text)

        before = await explain()
        assert before["summary"] == "2 replicas, serving: 20 requests wait or run and a replica should carry 16"
        assert before["chain"][-1]["step"] in {"published", "controller"}
        assert differences(read_inputs(before["inputs"], CHAT)) == []
        assert before["follows"] is None

        running.config.write_text(running.config.read_text().replace("work: 16", "work: 8"))
        running.process.send_signal(signal.SIGHUP)
        await running.until_metric('tidegate_replicas{namespace="ai",workload="chat"} 3')
        after, earlier = await explain(), await explain(f"?at={before['at']}")
        assert (after["inputs"]["spec"]["targets"]["work"], after["answer"]["replicas"]) == (8.0, 3)
        assert earlier["inputs"]["spec"]["targets"]["work"] == 16.0
        assert earlier["log_begins_at"] == after["log_begins_at"] == before["log_begins_at"]
        assert [differences(read_inputs(each["inputs"], CHAT)) for each in (after, earlier)] == [[], []]

        (chart,) = json.loads((await running.get("/api/v1/history/ai/chat"))[1])["workloads"]
        assert chart["at"] == sorted(set(chart["at"]))
        assert (chart["replicas"][-1], chart["load"][-1], 2 in chart["replicas"]) == (3, 20.0, True)


async def test_running_daemon_reports_gpus_without_a_workload(daemon, targets, page, vllm):
    targets["engine"].body = vllm(running=1, finished=1)
    targets["node"].body = page.gpu("GPU-1", ["llm-0"], engine=0.5)
    workload = f'  - {{namespace: ai, name: chat, engine: vllm, pods: {{url: "{targets.url("engine")}"}}}}\n'
    async with daemon(workload, f'gpus: [{{url: "{targets.url("node")}"}}]') as running:

        async def unmatched():
            return json.loads((await running.get("/api/v1/rows"))[1])["gpus_unmatched"]

        found = await until(unmatched, bool)
    assert [(each["gpus"], each["pods"], each["reason"]) for each in found] == [(1, ["ai/llm-0"], "other_name")]
