r"""Queues in Redis, asked directly: lists, sorted sets and stream groups, of one server, by Sentinel or in a Cluster.

What comes back is printed as a page in the words the catalog has for Redis (kind redis_exporter), so that everything
after it is the path of every other page. The client library is imported with the first question: who has no queue in
Redis never pays for it.

- `query`: what is asked, in Redis' own commands.   - `answers`: replies to a page, or why there is none.
- `server`: one connection to one server.           - `ways`: which server to ask: the one, the master, a slot's owner.
- `client`: the pages.

Worked example: the list `jobs` holds three entries. `RedisPages.fetch` of `redis://10.0.0.7:6379/0?list=jobs` is
`b'tidegate_redis_waiting{db="db0",key="jobs"} 3.0\n'`; if `jobs` is a hash it is a `Failure` that says so.
"""

from .client import RedisPages
from .query import Due, RedisQuery, Servers, Size, Stream, Way

__all__ = ["Due", "RedisPages", "RedisQuery", "Servers", "Size", "Stream", "Way"]
