"""A worker of leased-torture: acquires locks, writes under them in PostgreSQL, and prints what it does as JSON.

proptest/torture describes the events. Half of the time it does not check its lease before it
writes, like a holder that is paused right after the check.
"""

from __future__ import annotations

import json
import os
import random
import ssl
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

import leased

REQUESTED, ACQUIRED, ENDED, SENT, ACKNOWLEDGED, REJECTED = 1, 2, 4, 5, 6, 7
WRITE, ENTER, READ = 0, 1, 2
SET = ("INSERT INTO torture_register (resource, version) VALUES (%s, %s) "
       "ON CONFLICT (resource) DO UPDATE SET version = excluded.version")
NOTE = "INSERT INTO torture_log (resource, op, token, seen, version) VALUES (%s, %s, %s, %s, %s)"

spec: dict[str, Any] = json.loads(os.environ["LEASED_TORTURE_WORKER"])
printing = threading.Lock()
op = spec["Number"] << 44 | spec["Life"] << 24


def emit(kind: int, **event: Any) -> None:
    """Print an event in one write, so that a kill loses no printed event."""
    with printing:
        event.update(At=time.monotonic_ns(), Kind=kind, Who=spec["Name"])
        os.write(1, json.dumps(event).encode() + b"\n")


def operation(access: int, do: Callable[[psycopg.Connection[Any], int], int], **event: Any) -> int | None:
    """Execute one operation on the storage. None means that it was refused, or that its outcome is unknown."""
    global op
    op += 1
    event.update(Op=op, Access=access)
    emit(SENT, **event)
    try:
        with psycopg.connect(spec["DSN"], connect_timeout=5) as connection:
            version = do(connection, op)
    except leased.StaleToken:
        emit(REJECTED, **event)
        return None
    except (psycopg.Error, leased.LeasedError) as error:
        print(error, file=sys.stderr)
        return None
    emit(ACKNOWLEDGED, **{**event, "Version": version})
    return version


def work(lease: leased.Lease) -> None:
    """Enter the gate, read, and write a few times."""
    careless = random.random() < 0.5
    name, token = lease.resource, lease.token

    def enter(connection: psycopg.Connection[Any], op: int) -> int:
        lease.fence(connection)
        return 0

    def read(connection: psycopg.Connection[Any], op: int) -> int:
        row = connection.execute("SELECT version FROM torture_register WHERE resource = %s", (name,)).fetchone()
        return int(row[0]) if row else 0

    if operation(ENTER, enter, Resource=name, Token=token) is None:
        return
    seen = operation(READ, read, Resource=name, Token=token)
    for _ in range(random.randint(1, 4)):
        if seen is None:
            return
        time.sleep(random.uniform(0, 0.1))
        if not careless and lease.lost.is_set():
            return

        base = seen

        def write(connection: psycopg.Connection[Any], op: int) -> int:
            lease.fence(connection)
            connection.execute(SET, (name, base + 1))
            connection.execute(NOTE, (name, op, token, base, base + 1))
            return base + 1

        seen = operation(WRITE, write, Resource=name, Token=token, Seen=seen, Version=seen + 1)


def attempt(client: leased.Client, name: str, number: int) -> None:
    """Acquire a lock, work under it and release it."""
    event: dict[str, Any] = {"Resource": name, "Attempt": f"{spec['Name']}.{spec['Life']}/{number}"}
    emit(REQUESTED, **event)
    try:
        lease = client.lock(name, wait=2.0, ttl=1.0).acquire()
    except leased.LeasedError as error:
        print(error, file=sys.stderr)
        return
    event["Token"] = lease.token
    emit(ACQUIRED, Note=lease.mode, **event)
    ended = threading.Lock()

    def end() -> None:
        if ended.acquire(blocking=False):  # once
            emit(ENDED, **event)

    def watch() -> None:
        if lease.lost.wait(30):
            end()

    threading.Thread(target=watch, daemon=True).start()
    work(lease)
    end()
    try:
        lease.release()
    except leased.LeasedError as error:
        print(error, file=sys.stderr)  # it may be lost


def main() -> None:
    """Work until the input ends."""
    random.seed(f"{spec['Seed']} {spec['Number']} {spec['Life']}")
    stopped = threading.Event()

    def read() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=read, daemon=True).start()
    endpoints = ["https://" + endpoint for endpoint in spec["Endpoints"]]
    context = ssl.create_default_context(cafile=spec["CA"])
    with leased.Client(endpoints, ssl_context=context, holder=spec["Name"]) as client:
        number = 0
        while not stopped.wait(random.uniform(0, 0.1)):
            number += 1
            generation = str((time.monotonic_ns() - spec["Began"]) // 20_000_000_000)
            if random.random() < 1 / 40:
                generation = "always"
            attempt(client, f"{random.choice(spec['Classes'])}/{generation}/{random.randrange(3)}", number)


if __name__ == "__main__":
    main()
