"""Queues are read from the exporters of message brokers."""

from math import isnan

import pytest

from exporter.catalog import detect
from exporter.model import Quantity, Queue

Q = Quantity

REDIS = """
    redis_up 1
    redis_key_size{db="db0",key="jobs"} 12
    redis_key_size{db="db0",key="events"} 5000
    redis_stream_length{db="db0",stream="events"} 5000
    redis_stream_group_lag{db="db0",stream="events",group="workers"} 7
    redis_stream_group_messages_pending{db="db0",stream="events",group="workers"} 3
    redis_stream_group_consumer_messages_pending{db="db0",stream="events",group="workers",consumer="c"} 3
    """


def test_redis_lists_and_stream_groups_are_queues(read, cell):
    samples = read(REDIS)
    assert samples.kind == "redis_exporter"
    assert set(samples.subjects) == {Queue("jobs"), Queue("events/workers")}
    assert cell(samples, "jobs", Q.REQUESTS_WAITING) == 12.0
    assert cell(samples, "events/workers", Q.REQUESTS_WAITING) == 7.0
    assert cell(samples, "events/workers", Q.REQUESTS_RUNNING) == 3.0


def test_redis_key_is_named_with_its_database_only_if_two_have_it(read):
    samples = read(
        'redis_key_size{db="db0",key="a"} 1\nredis_key_size{db="db1",key="a"} 2\nredis_key_size{key="b"} 3\n'
    )
    assert samples.subjects == (Queue("db0/a"), Queue("db1/a"), Queue("b"))


def test_redis_exporter_without_checked_keys_has_no_queues(read):
    samples = read("redis_up 1\nredis_connected_clients 4\n")
    assert samples.kind == "redis_exporter"
    assert samples.subjects == ()


CELERY = """
    celery_queue_length{queue_name="celery"} 3.0
    celery_active_worker_count{queue_name="celery"} 1.0
    celery_worker_up{hostname="w1"} 1.0
    celery_worker_tasks_active{hostname="w1"} 2.0
    celery_worker_tasks_active{hostname="w2"} 1.0
    celery_task_succeeded_total{hostname="w1",name="src.ok",queue_name="celery"} 10.0
    celery_task_succeeded_created{hostname="w1",name="src.ok",queue_name="celery"} 1.78e+09
    celery_task_failed_total{exception="E",hostname="w1",name="src.bad",queue_name="celery"} 4.0
    """


def test_tasks_of_celery_without_a_queue_belong_to_the_only_queue(read, cell):
    samples = read(CELERY)
    assert samples.kind == "celery"
    assert samples.subjects == (Queue("celery"),)
    assert cell(samples, "celery", Q.REQUESTS_WAITING) == 3.0
    assert cell(samples, "celery", Q.REQUESTS_RUNNING) == 3.0
    assert cell(samples, "celery", Q.REQUESTS_FINISHED) == 10.0
    assert cell(samples, "celery", Q.REQUESTS_FAILED) == 4.0


def test_tasks_of_celery_without_a_queue_are_ignored_if_there_are_several(read, cell):
    samples = read(CELERY + '    celery_queue_length{queue_name="mail"} 0\n')
    assert set(samples.subjects) == {Queue("celery"), Queue("mail")}
    assert isnan(cell(samples, "celery", Q.REQUESTS_RUNNING))
    assert isnan(cell(samples, "mail", Q.REQUESTS_RUNNING))
    assert cell(samples, "mail", Q.REQUESTS_WAITING) == 0.0


def test_celery_tasks_without_a_queue_length_make_no_queue(read):
    assert read('celery_task_succeeded_total{name="t",queue_name="gone"} 1\n').subjects == ()


def test_finished_jobs_of_rq_are_no_counter(read, cell):
    samples = read(
        """
        rq_workers{name="w",queues="default",state="busy"} 1.0
        rq_jobs{queue="default",status="queued"} 2.0
        rq_jobs{queue="default",status="started"} 1.0
        rq_jobs{queue="default",status="finished"} 5.0
        rq_jobs{queue="default",status="failed"} 1.0
        rq_jobs{queue="default",status="deferred"} 7.0
        rq_jobs{queue="default",status="scheduled"} 9.0
        """
    )
    assert samples.kind == "rq"
    assert cell(samples, "default", Q.REQUESTS_WAITING) == 2.0
    assert cell(samples, "default", Q.REQUESTS_RUNNING) == 1.0
    assert samples.quantities == (Q.REQUESTS_WAITING, Q.REQUESTS_RUNNING)


@pytest.mark.parametrize(
    ("ready", "unacked"),
    [
        ("rabbitmq_queue_messages_ready", "rabbitmq_queue_messages_unacked"),
        ("rabbitmq_detailed_queue_messages_ready", "rabbitmq_detailed_queue_messages_unacked"),
        ("rabbitmq_queue_messages_ready", "rabbitmq_queue_messages_unacknowledged"),
    ],
)
def test_queues_of_rabbitmq_are_read_from_each_endpoint(read, cell, ready, unacked):
    samples = read(
        f"""
        rabbitmq_identity_info{{rabbitmq_node="rabbit@a"}} 1
        {ready}{{vhost="/",queue="jobs"}} 4
        {ready}{{vhost="/",queue="mail"}} 0
        {unacked}{{vhost="/",queue="jobs"}} 2
        {unacked}{{vhost="/",queue="mail"}} 0
        """
    )
    assert samples.kind == "rabbitmq"
    assert cell(samples, "jobs", Q.REQUESTS_WAITING) == 4.0
    assert cell(samples, "jobs", Q.REQUESTS_RUNNING) == 2.0
    assert cell(samples, "mail", Q.REQUESTS_WAITING) == 0.0


def test_aggregated_metrics_of_rabbitmq_have_no_queue(read, cell):
    samples = read("rabbitmq_queue_messages_ready 4\nrabbitmq_queue_messages_unacked 1\n")
    assert samples.subjects == (Queue("default"),)
    assert cell(samples, "default", Q.REQUESTS_WAITING) == 4.0


def test_queues_of_one_name_in_two_virtual_hosts_are_two(read):
    line = 'rabbitmq_queue_messages_ready{{vhost="{}",queue="jobs"}} 4\n'
    assert read(line.format("a") + line.format("b")).subjects == (Queue("a/jobs"), Queue("b/jobs"))


def nats(name, leader, value, family="jetstream"):
    return (
        f'{family}_consumer_{name}{{account="A",consumer_name="workers",is_consumer_leader="{leader}",'
        f'server_name="n{leader}",stream_name="ORDERS"}} {value}\n'
    )


@pytest.mark.parametrize("family", ["jetstream", "nats"])
def test_only_the_leader_of_a_consumers_replicas_counts(read, cell, family):
    pairs = [("num_pending", 20, 0), ("num_ack_pending", 9, 9)]
    samples = read("".join(nats(name, "true", led, family) + nats(name, "false", rest, family)
                           for name, led, rest in pairs))  # fmt: skip
    assert samples.kind == "nats"
    assert cell(samples, "workers", Q.REQUESTS_WAITING) == 20.0
    assert cell(samples, "workers", Q.REQUESTS_RUNNING) == 9.0


def test_zero_of_a_follower_is_no_empty_queue(read, cell):
    assert isnan(cell(read(nats("num_pending", "false", 0)), "workers", Q.REQUESTS_WAITING))


# Of nats-server 2.15.1 and exporter 0.20.1, shortened: a consumer with 5 pending and 2 unacknowledged messages.
def started(cluster, leader, pending):
    return "".join(
        f'jetstream_consumer_{name}{{account="$G",account_name="$G",cluster="{cluster}",consumer_leader="{leader}",'
        f'consumer_name="workers",is_consumer_leader="true",is_stream_leader="true",server_name="n1",'
        f'stream_leader="n1",stream_name="ORDERS"}} {value}\n'
        for name, value in (("num_pending", pending), ("num_ack_pending", 2))
    )


def test_server_of_a_cluster_that_has_not_joined_yet_leads_nothing(read, cell):
    """It says 0 pending; the messages are there."""
    samples = read(started("c", "", 0))
    assert isnan(cell(samples, "workers", Q.REQUESTS_WAITING))
    assert isnan(cell(samples, "workers", Q.REQUESTS_RUNNING))
    both = read(started("c", "", 0) + started("c", "n0", 5).replace('server_name="n1"', 'server_name="n0"'))
    assert cell(both, "workers", Q.REQUESTS_WAITING) == 5.0
    assert cell(both, "workers", Q.REQUESTS_RUNNING) == 2.0


def test_server_without_a_cluster_leads_without_a_name(read, cell):
    samples = read(started("", "", 3))
    assert cell(samples, "workers", Q.REQUESTS_WAITING) == 3.0
    assert cell(samples, "workers", Q.REQUESTS_RUNNING) == 2.0


def test_exporter_whose_server_is_down_knows_no_queue(read):
    """It answers with what it last read of the server itself, and without JetStream's metrics."""
    samples = read('gnatsd_varz_connections{server_id="http://nats:8222"} 0\n')
    assert samples.kind == "nats"
    assert samples.subjects == ()


def test_replicas_without_a_leader_label_all_count(read, cell):
    samples = read('jetstream_consumer_num_pending{consumer_name="workers",stream_name="ORDERS"} 3\n')
    assert cell(samples, "workers", Q.REQUESTS_WAITING) == 3.0


def test_partitions_of_kafka_add_up_without_the_exported_sum(read, cell):
    samples = read(
        """
        kafka_brokers 3
        kafka_consumergroup_lag{consumergroup="g",partition="0",topic="t"} 3
        kafka_consumergroup_lag{consumergroup="g",partition="1",topic="t"} 4
        kafka_consumergroup_lag_sum{consumergroup="g",topic="t"} 7
        kafka_consumergroup_current_offset{consumergroup="g",partition="0",topic="t"} 100
        """
    )
    assert samples.kind == "kafka"
    assert samples.subjects == (Queue("g/t"),)
    assert cell(samples, "g/t", Q.REQUESTS_WAITING) == 7.0


def test_kafka_partition_without_a_committed_offset_makes_the_lag_unknown_and_not_smaller(read, cell):
    samples = read(
        """
        kafka_consumergroup_lag{consumergroup="g",partition="0",topic="t"} 3
        kafka_consumergroup_lag{consumergroup="g",partition="1",topic="t"} -1
        kafka_consumergroup_lag_sum{consumergroup="g",topic="t"} 3
        """
    )
    assert isnan(cell(samples, "g/t", Q.REQUESTS_WAITING))
    assert [line for line, _ in samples.dropped] == [2]


@pytest.mark.parametrize(
    "line",
    [
        'kafka_consumergroup_group_topic_sum_lag{cluster_name="c",group="g",topic="t"} 7',
        'kminion_kafka_consumer_group_topic_lag{group_id="g",topic_name="t"} 7',
        'kafka_consumergroup_lag_sum{consumergroup="g",topic="t"} 7',
    ],
)
def test_kafka_lag_is_read_under_the_name_of_every_exporter(read, cell, line):
    assert cell(read(line + "\n"), "g/t", Q.REQUESTS_WAITING) == 7.0


def test_kafka_client_library_is_no_kafka_exporter(page):
    assert detect(page("kafka_consumer_records_lag_max 3\nkafka_server_BrokerState 3\n").layout) is None
