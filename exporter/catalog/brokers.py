"""Maps the metrics of brokers: Redis lists and streams, Celery, RQ, RabbitMQ, NATS JetStream, Kafka groups.

A broker exists at zero replicas, so an empty queue is a true zero. Delivered and not yet acknowledged is running. A
name is shortened only as far as it stays unique in the response.

Worked example: `rabbitmq_queue_messages_ready{vhost="/",queue="jobs"} 4` and
`rabbitmq_queue_messages_unacked{vhost="/",queue="jobs"} 2` make 4 requests waiting and 2 running for `Queue("jobs")`.
"""

from __future__ import annotations

from collections.abc import Sequence

from exporter.model import Quantity, Queue, Subject

from .kind import Kind
from .schema import COUNTER, UNNAMED, Key, Labels, SeriesRow, label, labels_of, matching, shortest, where

Q = Quantity


def _redis_key(labels: Labels) -> Key:
    return (labels.get("db", ""), labels.get("key", ""))


def _redis_group(labels: Labels) -> Key:
    return (labels.get("db", ""), labels.get("stream", ""), labels.get("group", ""))


def _redis_subjects(keys: Sequence[Key]) -> list[Subject | None]:
    """Lists by key, streams by stream/group; with the database only where two have one of that name.

    The size of a key that is a stream is left out: it counts entries, read or not, and is no backlog.
    """
    streams = {key[:2] for key in keys if len(key) == len(("db", "stream", "group"))}
    names = ["/".join(key[1:]) for key in keys]
    return [
        None if key in streams else Queue(f"{key[0]}/{name}" if names.count(name) > 1 else name)
        for key, name in zip(keys, names, strict=True)
    ]


# redis_exporter: exporter/keys.go (--check-keys, --check-single-keys), exporter/streams.go (--check-streams). Lag is
# what no consumer has, pending what one has and has not acknowledged. The tidegate_redis names are those of
# exporter/sources/redis. A lag that Redis cannot compute is exposed as 0.
_REDIS_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("redis_key_size", "tidegate_redis_waiting"), _redis_key),
    SeriesRow(Q.REQUESTS_RUNNING, ("tidegate_redis_running",), _redis_key),
    SeriesRow(Q.REQUESTS_WAITING, ("redis_stream_group_lag",), _redis_group),
    SeriesRow(Q.REQUESTS_RUNNING, ("redis_stream_group_messages_pending",), _redis_group),
)

REDIS_EXPORTER = Kind(
    "redis_exporter", {"redis_": 2}, port=9121, work=1.0, rows=_REDIS_ROWS, subjects=_redis_subjects, at_zero="queue"
)


def _celery_queue(labels: Labels) -> Key:
    return ("queue", labels.get("queue_name", ""))


def _celery_task(labels: Labels) -> Key:
    return ("task", labels.get("queue_name", ""))


def _celery_queues(keys: Sequence[Key]) -> list[Subject | None]:
    """Queues by name. A series without a queue belongs to the only queue, or is left out if there are several."""
    queues = [name for what, name in keys if what == "queue"]
    lone = queues[0] if len(queues) == 1 else None
    names = [name or lone for _, name in keys]
    return [Queue(name or UNNAMED) if name in queues else None for name in names]


# danihodovic/celery-exporter: src/exporter.py. The length is Redis' LLEN or the broker's message count: without what
# workers have fetched ahead, and on Redis without the lists of other priorities. Tasks name their queue since 0.10.
_CELERY_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("celery_queue_length",), _celery_queue),
    SeriesRow(Q.REQUESTS_RUNNING, ("celery_worker_tasks_active",), _celery_task),  # per worker, of whatever queue
    SeriesRow(Q.REQUESTS_FINISHED, ("celery_task_succeeded_total",), _celery_task, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("celery_task_failed_total",), _celery_task, unit=COUNTER),
)
CELERY = Kind(
    "celery", {"celery_": 2}, port=9808, work=1.0, rows=_CELERY_ROWS, subjects=_celery_queues, at_zero="queue"
)

# mdawar/rq-exporter and django-rq: jobs per queue and status. Finished and failed ones are kept for a time and then
# forgotten: sizes of a list, no counters. Deferred and scheduled ones wait for something else than a worker.
_RQ_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("rq_jobs",), label("queue"), keep=where(status="queued")),
    SeriesRow(Q.REQUESTS_RUNNING, ("rq_jobs",), label("queue"), keep=where(status="started")),
)
RQ = Kind("rq", {"rq_jobs": 2, "rq_workers": 2}, port=9726, work=1.0, rows=_RQ_ROWS, at_zero="queue")

# RabbitMQ: deps/rabbitmq_prometheus, on 15692. /metrics adds up a node's queues under no name; /metrics/per-object and
# /metrics/detailed name them; kbudde's exporter names it unacknowledged. Only the node of a queue counts it.
_RABBIT_QUEUE = labels_of("vhost", "queue")
_RABBIT_READY = ("rabbitmq_detailed_queue_messages_ready", "rabbitmq_queue_messages_ready")
_RABBIT_UNACKED = (
    "rabbitmq_detailed_queue_messages_unacked",
    "rabbitmq_queue_messages_unacked",
    "rabbitmq_queue_messages_unacknowledged",
)
_RABBIT_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, _RABBIT_READY, _RABBIT_QUEUE),
    SeriesRow(Q.REQUESTS_RUNNING, _RABBIT_UNACKED, _RABBIT_QUEUE),
)
RABBITMQ = Kind(
    "rabbitmq", {"rabbitmq_": 2}, port=15692, path="/metrics/per-object", work=1.0, rows=_RABBIT_ROWS,
    subjects=shortest, at_zero="queue",
)  # fmt: skip


# prometheus-nats-exporter with -jsz=consumers or all; "nats" instead of "jetstream" under -prefix. Every replica of a
# consumer exposes it, followers with 0 pending (exporter issue 218): only the leader counts, or all if the exporter is
# too old to have the label. Without a leader in the response the queue is unknown. A server of a cluster that starts
# says it leads what it has restored, with 0 pending and without the leader's name, until it has joined: no leader
# either. A server without a cluster never has that name. A message that nobody acknowledges in time is unacknowledged
# until it is delivered again.
def _leads(labels: Labels) -> bool:
    if labels.get("is_consumer_leader", "true") != "true":
        return False
    return not labels.get("cluster") or labels.get("consumer_leader") != ""


_LEADER = matching(_leads)
_NATS_CONSUMER = labels_of("account", "stream_name", "consumer_name")
_NATS_ROWS = tuple(
    SeriesRow(quantity, (f"jetstream_consumer_{name}", f"nats_consumer_{name}"), _NATS_CONSUMER, keep=_LEADER)
    for quantity, name in ((Q.REQUESTS_WAITING, "num_pending"), (Q.REQUESTS_RUNNING, "num_ack_pending"))
)
NATS = Kind(
    "nats", {"jetstream_": 2, "nats_consumer_": 2, "nats_stream_": 2, "gnatsd_": 2}, port=7777, work=1.0,
    rows=_NATS_ROWS, subjects=shortest, at_zero="queue",
)  # fmt: skip


def _kafka_groups(keys: Sequence[Key]) -> list[Subject | None]:
    """group/topic: a group may read several topics and a topic have several groups."""
    return [Queue("/".join(filter(None, key)) or UNNAMED) for key in keys]


# kafka_exporter (danielqsj): per partition and summed; seglo's kafka-lag-exporter; KMinion. Lag is what is produced and
# not committed, so it includes requests in progress. -1 is no committed offset: unknown, never a negative queue, and
# one such partition makes the sum unknown (the exporter's own sum leaves it out).
_KAFKA_LAG = (
    "kafka_consumergroup_lag",
    "kafka_consumergroup_lag_sum",
    "kafka_consumergroup_group_topic_sum_lag",
    "kafka_consumergroup_group_lag",
    "kminion_kafka_consumer_group_topic_lag",
)
_KAFKA_GROUP = labels_of(("consumergroup", "group", "group_id"), ("topic", "topic_name"))
_KAFKA_ROWS = (SeriesRow(Q.REQUESTS_WAITING, _KAFKA_LAG, _KAFKA_GROUP),)
KAFKA = Kind(
    "kafka", {"kafka_consumergroup_": 2, "kafka_brokers": 2, "kminion_": 2}, port=9308, work=1.0, rows=_KAFKA_ROWS,
    subjects=_kafka_groups, at_zero="queue",
)  # fmt: skip
