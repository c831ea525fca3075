"""A client of RabbitMQ: `python rabbitmq_client.py PORT`, in the environment that `make test-engines` creates for it.

Reads commands from stdin, a line each, and prints `ok` once the broker has confirmed one: `publish 7` puts seven jobs
into the queue, `take 3` receives three, `finish` acknowledges what it has received, `restart` disconnects without that.
"""

import sys

import pika

QUEUE = "jobs"


class Client:
    def __init__(self, port):
        self.parameters = pika.ConnectionParameters("127.0.0.1", port)
        self._connect()

    def _connect(self):
        self.connection = pika.BlockingConnection(self.parameters)
        self.channel = self.connection.channel()
        self.channel.queue_declare(QUEUE, durable=True)
        self.channel.confirm_delivery()
        self.taken = []

    def publish(self, count):
        for _ in range(count):
            self.channel.basic_publish("", QUEUE, b"job")

    def take(self, count):
        self.taken += [self.channel.basic_get(QUEUE)[0].delivery_tag for _ in range(count)]

    def finish(self):
        for tag in self.taken:
            self.channel.basic_ack(tag)
        self.taken = []

    def restart(self):
        self.connection.close()
        self._connect()


def main():
    client = Client(int(sys.argv[1]))
    while line := sys.stdin.readline():
        command, *counts = line.split()
        getattr(client, command)(*map(int, counts))
        sys.stdout.write("ok\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
