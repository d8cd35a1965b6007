"""Compares pairs of acquire and release per second with other locks: make bench-sdk.

64 threads each use a lock of their own. The rounds of all kinds take turns, and the ratios are
those of rounds that ran one after the other, so that all had the same machine. Each service is one
server, with its log on disk, except for efficiency mode: a quorum of five Redis servers. redis-py's
Lock is one Redis server without fencing tokens.
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import etcd3
import kazoo.client
import redis

import leased
from conftest import ROOT, Member, eventually, free_port

THREADS, SECONDS, ROUNDS = 64, 3.0, 5


def pairs(one: Callable[[int], Any]) -> float:
    """Return how many pairs per second all threads make together."""
    counts = [0] * THREADS
    end = time.monotonic() + SECONDS

    def work(number: int) -> None:
        while time.monotonic() < end:
            with one(number):
                counts[number] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / SECONDS


@contextlib.contextmanager
def server(port: int, *command: str) -> Iterator[int]:
    """Run a server until the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listens() -> bool:
        assert process.poll() is None, command
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(f"{command[0]} listens", listens)
        yield port
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def servers(folder: pathlib.Path) -> Iterator[tuple[int, int, int]]:
    """Run Redis, etcd and ZooKeeper until the end of the block. Return their ports."""
    one, two, peer, three = (free_port() for _ in range(4))
    url = f"http://127.0.0.1:{two}"
    settings = folder / "zoo.cfg"
    settings.write_text(f"tickTime=2000\ndataDir={folder}/zoo\nclientPort={three}\nmaxClientCnxns=0\n"
                        "admin.enableServer=false\n")
    with server(one, "redis-server", "--port", str(one), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)), \
            server(two, "etcd", "--data-dir", f"{folder}/etcd", "--listen-client-urls", url, "--advertise-client-urls",
                   url, "--listen-peer-urls", f"http://127.0.0.1:{peer}"), \
            server(three, "java", "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar",
                   "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)):
        yield one, two, three


def main(program: str) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name, servers(pathlib.Path(name)) as (one, two, three):
        member = Member(program, pathlib.Path(name) / "leased")
        try:
            member.call("set-policy", {"policy": {"prefix": "fast/", "mode": "efficiency", "ttl": "10s"}})
            eventually("the migration ends", lambda: not member.call("list-policies", {})["migrations"])
            eventually("efficiency mode is ready", lambda: bool(member.call("get-fleet", {}).get("ready")))
            alone, etcd = redis.Redis(port=one), etcd3.client(port=two)
            zookeeper = kazoo.client.KazooClient(f"127.0.0.1:{three}")
            zookeeper.start()
            with leased.Client(member.url) as client:
                kinds: dict[str, Callable[[int], Any]] = {
                    "redis-py Lock": lambda i: alone.lock(f"bench/{i}", timeout=10),
                    "leased, correctness": lambda i: client.lock(f"bench/{i}", wait=60),
                    "leased, efficiency": lambda i: client.lock(f"fast/bench/{i}", wait=60),
                    "python3-etcd3 Lock": lambda i: etcd.lock(f"bench/{i}", ttl=10),
                    "kazoo Lock": lambda i: zookeeper.Lock(f"/bench/{i}"),
                }
                rounds = [{kind: pairs(one) for kind, one in kinds.items()} for _ in range(ROUNDS + 1)][1:]
            print(f"{'':22}   pairs/s   leased, correctness : this")
            for kind in kinds:
                ratio = statistics.median(r["leased, correctness"] / r[kind] for r in rounds)
                print(f"{kind:22} {statistics.median(r[kind] for r in rounds):9.0f} {ratio:24.2f}")
            subprocess.run(["node", str(ROOT / "sdk/typescript/test/bench.js"), member.url, f"127.0.0.1:{two}"],
                           check=True)
            zookeeper.stop()
        finally:
            member.stop()


if __name__ == "__main__":
    main(sys.argv[1])
