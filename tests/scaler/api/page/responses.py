"""Responses of other packages for a workload, in their documented form: history, explanation, accounts."""

from __future__ import annotations

from aiohttp import web

from scaler.explain.rows import row

from .conftest import NOW, history

CHAIN = [
    {
        "step": "raw", "title": "What the targets report", "sentences": ["Two pods answered."],
        "table": {"columns": ["pod", "waiting", "KV cache"], "rows": [["chat-a", 3, 0.625], ["chat-b", None, None]]},
    },
    {"step": "published", "title": "Published replicas", "sentences": ["3 replicas.", "It is active."], "table": None},
    {"step": "of tomorrow", "title": "A step of a later version", "sentences": [], "table": None},
]  # fmt: skip
CHANGES = [
    {"at": NOW - 900.0, "replicas": 0, "active": False, "reason": "asleep"},
    {"at": NOW - 600.0, "replicas": None, "active": True, "reason": "unknown"},
    {"at": NOW - 300.0, "replicas": 3, "active": True, "reason": "of_tomorrow"},
]
SHADOW = {
    "seconds": 172800.0, "gpu_seconds_saved": 3600.0 * 41.2, "gpu_seconds_added": 0.0, "queue_seconds": 90.0,
    "more_seconds": 600.0, "fewer_seconds": 7200.0,
}  # fmt: skip


def one_of_everything(decisions, queries=None, follows=None, chain=CHAIN, answer=None):
    """Returns routes for a `Site`; queries of the explanation are appended to `queries`. answer: its decision."""

    async def explain(request):
        if queries is not None:
            queries.append(dict(request.query))
        at = float(request.query.get("at", NOW))
        return web.json_response({
            "workload": {}, "now": NOW, "at": at, "log_begins_at": NOW - 7200.0,
            "summary": f"3 replicas as of {at:.0f}",
            "answer": None if answer is None else answer.to_document(),
            "row": None if answer is None else row(answer, NOW).to_document(), "follows": follows, "chain": chain,
            "inputs": {"version": 1}, "changes": CHANGES,
        })  # fmt: skip

    async def accounts(_):
        seconds = {"serving": 7200.0, "idle_warm": 3600.0, "asleep": 36000.0, "loading": 0.0, "unknown": None}
        return web.json_response({"now": NOW, "since": NOW - 86400.0, "workloads": [
            {**each.workload._asdict(), "observed": each.observed, "gpu_seconds": seconds, "state_seconds": {},
             "wakes": 1, "sleeps": 2, "shadow": SHADOW if each.observed else None} for each in decisions
        ]})  # fmt: skip

    return [
        *history(decisions),
        web.get("/api/v1/explain/{namespace}/{name}", explain),
        web.get("/api/v1/accounts", accounts),
    ]
