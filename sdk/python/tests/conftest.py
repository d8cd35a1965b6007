"""A real service, real Redis nodes and a real PostgreSQL server for the tests."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest

import leased

ROOT = pathlib.Path(__file__).resolve().parents[3]


reserved: list[socket.socket] = []  # a UDP socket for each port: other test processes skip it


def free_port() -> int:
    """Return a port of the loopback interface that nobody uses, and that no outgoing connection gets."""
    while True:
        address = "127.0.0.1", random.randrange(10000, 15000)
        reservation = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError), socket.socket() as s:
            reservation.bind(address)
            if s.connect_ex(address) == errno.ECONNREFUSED:
                reserved.append(reservation)
                return address[1]
        reservation.close()


def eventually(what: str, holds: Callable[[], bool], limit: float = 120.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < end, "timeout: " + what
        time.sleep(0.02)


class Member:
    """A member of the service, with Redis nodes."""

    def __init__(self, program: str, folder: pathlib.Path, *flags: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        address = self.url.removeprefix("http://")
        raft = f"127.0.0.1:{free_port()}"
        self.process = subprocess.Popen([program, "dev", "--listen", address, "--raft-listen", raft,
                                         "--data", str(folder), *flags], stdout=subprocess.DEVNULL)
        eventually("the service is ready", self.ready)

    def ready(self) -> bool:
        """Report whether the member serves calls."""
        assert self.process.poll() is None, "the service has ended"
        try:
            with urllib.request.urlopen(self.url + "/readyz", timeout=1):
                return True
        except OSError:
            return False

    def call(self, method: str, body: object) -> dict[str, object]:
        """Call the service without a client."""
        request = urllib.request.Request(f"{self.url}/v1/{method}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            answer: dict[str, object] = json.load(response)
            return answer

    def stop(self) -> None:
        """Stop the member and its Redis nodes."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The leased binary: TEST_BINARY, or built from this repository."""
    path = os.environ.get("TEST_BINARY")
    if not path:
        path = str(tmp_path_factory.mktemp("bin") / "leased")
        subprocess.run(["go", "build", "-o", path, "./cmd/leased"], cwd=ROOT, check=True)
    return path


@pytest.fixture(scope="session")
def service(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """A service with a policy for locks in efficiency mode, fast/*."""
    member = Member(program, tmp_path_factory.mktemp("member"))
    try:
        member.call("set-policy", {"policy": {"prefix": "fast/", "mode": "efficiency", "ttl": "10s"}})
        eventually("the migration ends", lambda: not member.call("list-policies", {})["migrations"])
        eventually("efficiency mode is ready", lambda: bool(member.call("get-fleet", {}).get("ready")))
        yield member
    finally:
        member.stop()


@pytest.fixture
def client(service: Member) -> Iterator[leased.Client]:
    """A client of the service."""
    with leased.Client(service.url, holder="test") as c:
        yield c


@pytest.fixture
def other(service: Member) -> Iterator[leased.Client]:
    """Another client of the service."""
    with leased.Client(service.url, holder="other") as c:
        yield c


@pytest.fixture(scope="session")
def database(program: str) -> Iterator[str]:
    """The URL of a PostgreSQL database with the fences of leased."""
    tools = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    folder = tempfile.mkdtemp(prefix="leased-python-")
    root = os.geteuid() == 0
    if root:
        shutil.chown(folder, "postgres")
    user = {"user": "postgres"} if root else {}
    data = os.path.join(folder, "data")
    subprocess.run([tools + "/initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"], check=True,
                   stdout=subprocess.DEVNULL, cwd=folder, **user)  # type: ignore[call-overload]
    port = free_port()
    server = subprocess.Popen([tools + "/postgres", "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1",
                               "-c", "unix_socket_directories=", "-c", "fsync=off"], cwd=folder,
                              stderr=subprocess.DEVNULL, **user)  # type: ignore[call-overload]
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    try:
        ask = ["psql", url, "-c", "SELECT 1"]
        eventually("PostgreSQL is ready", lambda: subprocess.run(ask, capture_output=True).returncode == 0)
        ddl = subprocess.run([program, "gate", "ddl", "--dialect", "postgres"], check=True, capture_output=True).stdout
        subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", url], input=ddl, check=True)
        yield url
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)
