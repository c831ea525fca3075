"""The ACL in docs/how-to/redis.md allows every query of Tidegate."""

import re
from pathlib import Path

from exporter.model import Credentials
from exporter.sources.redis import Size, Stream

TEXT = (Path(__file__).parents[4] / "docs/how-to/redis.md").read_text(encoding="utf-8")
(ACL,) = re.findall(r"`ACL SETUSER tidegate on >… ([^`]*)`", TEXT)


async def test_documented_acl_allows_all_queries(server, ask, tmp_path):
    client = server.client
    await client.execute_command("ACL", "SETUSER", "tidegate", "on", ">p", *ACL.split())
    (tmp_path / "password").write_text("p")
    access = Credentials(username="tidegate", password_file=str(tmp_path / "password"))
    await client.xgroup_create("transcribe:events", "workers", mkstream=True)
    for number in range(3):
        entry = await client.xadd("transcribe:events", {"n": number})
    await client.xreadgroup("workers", "one", {"transcribe:events": ">"}, count=1)
    await client.xdel("transcribe:events", entry)
    await client.set("transcribe:text", "")
    await client.xadd("transcribe:fresh", {"n": 0})
    counts = await ask(
        server.port, access, lists=("transcribe", "transcribe:text"), sorted_sets=("transcribe:z",),
        streams=(Stream("transcribe:events", "workers"), Stream("transcribe:fresh", "workers")),
        running=(Size("transcribe:s", "set"), Size("transcribe:h", "hash")),
    )  # fmt: skip
    read_counts = {name: count for name, count in counts.items() if count[0] == count[0]}
    assert read_counts["transcribe:events/workers"] == (1.0, 1.0)
    assert counts.keys() - read_counts.keys() == {"transcribe:text", "transcribe:fresh/workers"}
