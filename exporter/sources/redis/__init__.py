r"""Counts queues in Redis: lists, sorted sets and stream groups of one server, a Sentinel group or a Cluster.

A page is printed with the names that the catalog has for Redis (kind redis_exporter), so that parsing and aggregation
are those of every other page. The client library is imported at the first fetch: an installation without a queue in
Redis never loads it.

- `query`: queues and their commands.     - `decode`: replies to a page.
- `client`: fetches pages.                - `servers`: connections, Sentinel and Cluster.

Worked example: the list `jobs` holds three entries. `RedisPages.fetch` of `redis://10.0.0.7:6379/0?list=jobs` returns
`b'tidegate_redis_waiting{db="db0",key="jobs"} 3.0\n'`; if `jobs` is a hash, a `Failure` that says so.
"""

from .client import RedisPages
from .query import Due, RedisQuery, Servers, Size, Stream, Way

__all__ = ["Due", "RedisPages", "RedisQuery", "Servers", "Size", "Stream", "Way"]
