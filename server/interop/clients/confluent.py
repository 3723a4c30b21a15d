"""confluent-kafka in front of a broker, driven by the tests of this directory.

    confluent.py produce BOOTSTRAP TOPIC CODEC    records on standard input
    confluent.py consume BOOTSTRAP TOPIC          every partition from its start to its end, by assignment; records on standard output
    confluent.py admin BOOTSTRAP TOPIC            creates, changes and deletes TOPIC; one line for each answer
    confluent.py group BOOTSTRAP TOPIC            two members of a group read TOPIC, which has 40 records in 4 partitions; one line for each step
    confluent.py roll BOOTSTRAP TOPIC GROUP       reads and commits until its standard input ends; one line for each record and commit
    confluent.py version

A record is a line of JSON: p partition, o offset, t timestamp in ms, k key, v value, h list of [name, value]; bytes are base64 or null.
"""
import base64
import json
import sys
import threading
import time

import confluent_kafka as ck
from confluent_kafka import admin as ckadmin

TIMEOUT = 60  # seconds, for each operation
NOW = int(time.time() * 1000)


def fail(err, *_):
    if err is not None and not err.retriable():
        sys.exit(f"confluent-kafka: {err}")


def pack(data):
    return None if data is None else base64.b64encode(data).decode()


def unpack(text):
    return None if text is None else base64.b64decode(text)


def settled(ask, want):
    """Apache shows a change a little after it has said that it is made."""
    for _ in range(100):
        got = ask()
        if got == want:
            break
        time.sleep(0.1)
    return got


def produce(bootstrap, topic, codec):
    delivered = 0

    def on_delivery(err, _):
        nonlocal delivered
        if err is not None:
            sys.exit(f"delivery: {err}")
        delivered += 1

    p = ck.Producer({
        "bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True,
        "batch.num.messages": 500, "linger.ms": 200, "error_cb": fail,
    })
    sent = 0
    for line in sys.stdin:
        r = json.loads(line)
        headers = [(name, unpack(value)) for name, value in r["h"]]
        p.produce(topic, value=unpack(r["v"]), key=unpack(r["k"]), partition=r["p"], timestamp=r["t"],
                  headers=headers, on_delivery=on_delivery)
        sent += 1
        p.poll(0)
    left = p.flush(TIMEOUT)
    if left or delivered != sent:
        sys.exit(f"sent {sent}, delivered {delivered}, left {left}")


def consume(bootstrap, topic):
    c = ck.Consumer({
        "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "error", "fetch.wait.max.ms": 20,
        "error_cb": fail,
    })
    partitions = c.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
    c.assign([ck.TopicPartition(topic, p, 0) for p in partitions])
    left = set(partitions)
    while left:
        m = c.poll(TIMEOUT)
        if m is None:
            sys.exit(f"nothing in {TIMEOUT} s, partitions {sorted(left)} have no end")
        if m.error() is None:
            kind, t = m.timestamp()
            if kind != ck.TIMESTAMP_CREATE_TIME:
                sys.exit(f"partition {m.partition()} offset {m.offset()}: timestamp type {kind}")
            print(json.dumps({"p": m.partition(), "o": m.offset(), "t": t, "k": pack(m.key()), "v": pack(m.value()),
                              "h": [[name, pack(value)] for name, value in m.headers() or []]}))
        elif m.error().code() == ck.KafkaError._PARTITION_EOF:
            left.discard(m.partition())
        else:
            sys.exit(f"consume: {m.error()}")
    c.close()


def admin(bootstrap, topic):
    a = ckadmin.AdminClient({"bootstrap.servers": bootstrap})
    resource = ckadmin.ConfigResource(ckadmin.ConfigResource.Type.TOPIC, topic)

    def one(futures):
        (future,) = futures.values()
        return future.result(TIMEOUT)

    def retention():
        return one(a.describe_configs([resource]))["retention.ms"].value

    def described():
        try:
            return one(a.describe_topics(ck.TopicCollection(topic_names=[topic])))
        except ck.KafkaException as e:
            return e.args[0].name()

    one(a.create_topics([ckadmin.NewTopic(topic, num_partitions=2, replication_factor=1, config={"retention.ms": "3600000"})]))
    cluster = a.describe_cluster().result(TIMEOUT)
    print("nodes", len(cluster.nodes), cluster.controller.id == cluster.nodes[0].id)
    print("retention", retention())
    entry = ckadmin.ConfigEntry("retention.ms", "7200000", incremental_operation=ckadmin.AlterConfigOpType.SET)
    one(a.incremental_alter_configs([ckadmin.ConfigResource(ckadmin.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])]))
    print("retention", settled(retention, "7200000"))
    one(a.create_partitions([ckadmin.NewPartitions(topic, 4)]))
    p = ck.Producer({"bootstrap.servers": bootstrap})
    for i in range(10):
        p.produce(topic, f"{i}", partition=3, timestamp=NOW + i)
    if p.flush(TIMEOUT):
        sys.exit("records are left")
    at = ck.TopicPartition(topic, 3)
    for name, spec in [("earliest", ck.admin.OffsetSpec.earliest()), ("latest", ck.admin.OffsetSpec.latest()),
                       ("max", ck.admin.OffsetSpec.max_timestamp()), ("at", ck.admin.OffsetSpec.for_timestamp(NOW + 4))]:
        print("offset", name, one(a.list_offsets({at: spec})).offset)
    print("low watermark", one(a.delete_records([ck.TopicPartition(topic, 3, 6)])).low_watermark)
    print("offset earliest", one(a.list_offsets({at: ck.admin.OffsetSpec.earliest()})).offset)
    found = described()
    print("partitions", len(found.partitions), [p.leader.id == p.replicas[0].id for p in found.partitions])
    one(a.delete_topics([topic]))
    print("deleted", settled(described, "UNKNOWN_TOPIC_OR_PART"))


def group(bootstrap, topic):
    """Subscribes, pauses, seeks, commits, leaves; a second member takes its share."""
    log = {"assigned": 0, "revoked": 0}

    def member(**more):
        c = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "g-" + topic, "enable.auto.commit": False, "auto.offset.reset": "earliest",
                         "heartbeat.interval.ms": 100, "session.timeout.ms": 6000, "fetch.wait.max.ms": 20, "error_cb": fail, **more})

        def count(what):
            def on(_, partitions):
                log[what] += len(partitions)
            return on
        c.subscribe([topic], on_assign=count("assigned"), on_revoke=count("revoked"))
        return c

    def read(c, n):
        got = []
        end = time.time() + TIMEOUT
        while len(got) < n and time.time() < end:
            m = c.poll(0.1)
            if m is not None and m.error() is None:
                got.append(m)
        if len(got) < n:
            sys.exit(f"{len(got)} of {n} records")
        return got

    one = member()
    got = read(one, 40)
    print("read", len({(m.partition(), m.offset()) for m in got}), "assigned", log["assigned"])
    one.commit(asynchronous=False)
    print("committed", sorted((p.partition, p.offset) for p in one.committed(one.assignment(), timeout=TIMEOUT)))
    one.pause([ck.TopicPartition(topic, 0)])
    for p in range(2):
        one.seek(ck.TopicPartition(topic, p, 5))
    print("after seek", sorted({m.partition() for m in read(one, 5)}))
    one.resume([ck.TopicPartition(topic, 0)])
    print("resumed", sorted({m.partition() for m in read(one, 5)}))
    two = member(**{"group.instance.id": "static"})
    end = time.time() + TIMEOUT
    while (len(one.assignment()), len(two.assignment())) != (2, 2) and time.time() < end:
        one.poll(0.05)
        two.poll(0.05)
    print("shared", len(one.assignment()), len(two.assignment()), "revoked", log["revoked"] >= 4)
    one.close()
    two.close()
    a = ckadmin.AdminClient({"bootstrap.servers": bootstrap})
    described = a.describe_consumer_groups(["g-" + topic])["g-" + topic].result(TIMEOUT)
    print("members", [m.group_instance_id for m in described.members])
    listed = a.list_consumer_groups().result(TIMEOUT)
    print("listed", ["g-" + topic] == [g.group_id for g in listed.valid if g.group_id == "g-" + topic], len(listed.errors))


def roll(bootstrap, topic, group_id):
    """Reads in a group and commits what it has read, over restarts of the broker."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    c = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, "enable.auto.commit": False, "auto.offset.reset": "earliest",
                     "heartbeat.interval.ms": 200, "session.timeout.ms": 10000, "fetch.wait.max.ms": 20, "reconnect.backoff.max.ms": 500,
                     "partition.assignment.strategy": "range"})
    c.subscribe([topic])
    pending = False
    while not over.is_set():
        messages = c.consume(200, 0.1)
        for m in messages:
            if m.error() is None:
                print("read", m.partition(), m.offset())
                pending = True
            elif m.error().fatal():
                sys.exit(f"roll: {m.error()}")
        if pending:
            try:
                for p in c.commit(asynchronous=False):
                    if p.error is None and p.offset >= 0:
                        print("committed", p.partition, p.offset)
                pending = False
            except ck.KafkaException as e:
                print("commit:", e, file=sys.stderr)
        sys.stdout.flush()
    c.close()


def version():
    print("confluent-kafka", ck.version(), "librdkafka", ck.libversion()[0])


if __name__ == "__main__":
    {f.__name__: f for f in (produce, consume, admin, group, roll, version)}[sys.argv[1]](*sys.argv[2:])
