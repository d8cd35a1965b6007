"""The synchronous client against a real service."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest

import leased
import leased.aio
from conftest import ROOT, Member, eventually
from leased._clock import format_duration, parse_duration
from leased._transport import Endpoint

MODE = {"strong/": "correctness", "fast/": "efficiency"}
MODES = pytest.mark.parametrize("prefix", ["strong/", "fast/"])


@MODES
def test_lock(client: leased.Client, other: leased.Client, prefix: str) -> None:
    name = prefix + "lock"
    with client.lock(name) as first:
        assert first.mode == MODE[prefix]
        assert 0 < first.remaining <= 10
        assert other.try_lock(name) is None
        with pytest.raises(leased.Held):
            other.lock(name, wait=0.1).acquire()
        assert client.inspect(name)["holders"][0]["holder"] == "test"
    second = other.try_lock(name)
    assert second is not None and second.token > first.token
    with second:
        pass
    second.release()  # twice


@MODES
def test_waiter_is_granted_on_release(client: leased.Client, other: leased.Client, prefix: str) -> None:
    name = prefix + "wait"
    first = client.lock(name).acquire()
    granted: list[leased.Lease] = []
    thread = threading.Thread(target=lambda: granted.append(other.lock(name, wait=60).acquire()))
    thread.start()
    time.sleep(0.2)
    assert not granted
    first.release()
    thread.join(60)
    assert granted[0].token > first.token
    granted[0].release()


@MODES
def test_lease_is_renewed(client: leased.Client, other: leased.Client, prefix: str) -> None:
    name = prefix + "renewed"
    with client.lock(name) as lease:
        least = lease.remaining
        while lease.remaining <= least:  # until a renewal
            least = lease.remaining
            assert not lease.lost.is_set()
            assert other.try_lock(name) is None
            time.sleep(0.1)


@MODES
def test_metadata_can_be_changed(client: leased.Client, other: leased.Client, prefix: str) -> None:
    with client.lock(prefix + "metadata", metadata={"done": "0%"}) as lease:
        assert other.inspect(lease.resource)["holders"][0]["metadata"] == {"done": "0%"}
        lease.set_metadata({"done": "40%"})
        assert other.inspect(lease.resource)["holders"][0]["metadata"] == {"done": "40%"}
    with pytest.raises(leased.LeaseLost):
        lease.set_metadata({"done": "100%"})


@MODES
def test_broken_lease_is_lost(client: leased.Client, other: leased.Client, prefix: str) -> None:
    with pytest.raises(leased.LeaseLost):
        with client.lock(prefix + "broken") as lease:
            other.break_lease(lease.resource, lease.token)
            assert lease.lost.wait(60)


def test_loss_is_pushed(service: Member, other: leased.Client) -> None:
    """A holder learns of a loss long before the next renewal, also by a stream that has to connect again."""
    with leased.Client(service.url, ttl=3600.0) as client:
        for name in ("s/pushed", "s/pushed-again"):
            with pytest.raises(leased.LeaseLost):
                with client.lock(name, wait=60) as lease:
                    other.break_lease(name, lease.token)
                    assert lease.lost.wait(60)
        ended = client.lock("s/ended").acquire()
        service.call("close-session", {"sessionId": ended._grant.kept.name["sessionId"]})
        assert ended.lost.wait(60)


@MODES
def test_calls_of_a_session_follow_the_leader(service: Member, prefix: str) -> None:
    """Answers name the leader. Any member serves locks in efficiency mode, so that they do not follow it."""
    elsewhere = service.url.replace("127.0.0.1", "localhost")  # the service does not know this address

    def called() -> str:
        with leased.Client([elsewhere, service.url]) as client, client.lock(prefix + "follow", mode=MODE[prefix]):
            return client._transport.endpoints.get().url

    if prefix == "strong/":
        assert called() == service.url
    else:  # a member that cannot serve the call is left, too
        eventually("the client stays", lambda: called() == elsewhere)


def test_sets_shared_and_permits(client: leased.Client, other: leased.Client) -> None:
    with client.lock(["s/b", "s/a"]) as both:
        assert both.resources == ("s/a", "s/b")
        assert other.try_lock("s/a") is None
    with client.lock("s/r", shared=True), other.lock("s/r", shared=True):
        assert other.try_lock("s/r") is None
    with client.lock("s/p", permits=2) as one, other.lock("s/p", permits=2) as two:
        assert {one.slot, two.slot} == {1, 2}
        assert one.gate_resource == f"s/p#{one.slot}"
        assert client.try_lock("s/p", permits=2) is None


def test_decorators_and_election(client: leased.Client, other: leased.Client) -> None:
    @client.lock("job")
    def work(n: int) -> int:
        assert other.try_lock("job") is None
        return n + 1

    @other.locked("job")
    def once() -> str:
        return "ran"

    assert work(1) == 2
    assert once() == "ran"
    with client.lock("job"):
        assert once() is None
    turns = []
    for lease in client.elect("leader"):
        turns.append(lease.token)
        if len(turns) == 2:
            break
    assert turns[0] < turns[1]
    with contextlib.closing(client.elect("leader")) as leading:
        next(leading)
        assert other.try_lock("leader") is None
    assert other.try_lock("leader") is not None


def test_functions_that_return_before_they_run_are_no_jobs(client: leased.Client) -> None:
    async def coroutine() -> None:
        pass

    def generator() -> Iterator[None]:
        yield

    async def both() -> AsyncIterator[None]:
        yield

    decorators: list[Any] = [client.lock("job"), client.locked("job")]
    for job in (coroutine, generator, both):
        for decorator in decorators:
            with pytest.raises(TypeError, match="inside the function"):
                decorator(job)


def test_bad_calls_say_what_to_do(client: leased.Client, service: Member) -> None:
    for url in ("ftp://x", "http://a:port", "http://a:70000", "http://[::1", "http://a:1,http://b:1"):
        with pytest.raises(leased.Invalid, match="127.0.0.1:7420"):
            leased.Client(url)
    assert Endpoint("http://a").url == "http://a:7420" and Endpoint("a:1/").url == "http://a:1"
    bad: list[Callable[[], object]] = [lambda: client.lock([]), lambda: client.lock("s/ttl", ttl=0),
                                       lambda: client.try_lock("s/ttl", ttl=float("nan")), lambda: leased.Client(ttl=0)]
    for call in bad:
        with pytest.raises(leased.Invalid, match="pass"):
            call()
    with pytest.raises(leased.ModeMismatch) as mismatch:
        client.lock("fast/mode", mode="correctness").acquire()
    assert mismatch.value.mode == "efficiency" and mismatch.value.hint
    with pytest.raises(leased.Unsupported):
        client.lock("fast/shared", shared=True).acquire()
    with leased.Client("http://127.0.0.1:1") as nobody, pytest.raises(leased.Unavailable, match="127.0.0.1:1"):
        nobody.inspect("a")
    with leased.Client(["http://127.0.0.1:1", service.url]) as second, second.lock("s/second"):
        pass


def test_forked_child_has_no_leases(client: leased.Client, other: leased.Client) -> None:
    with client.lock("s/fork") as lease:
        pid = os.fork()
        if pid == 0:
            ok = lease.lost.is_set() and client.try_lock("s/fork") is None and client.try_lock("s/child") is not None
            os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert not lease.lost.is_set()
        assert other.try_lock("s/fork") is None


def test_forked_child_is_another_holder(service: Member, other: leased.Client) -> None:
    with leased.Client(service.url) as client:
        client.lock("s/fork-holder").acquire().release()
        pid = os.fork()
        if pid == 0:
            client.lock("s/fork-holder").acquire()
            os._exit(0)
        os.waitpid(pid, 0)
        assert other.inspect("s/fork-holder")["holders"][0]["holder"].endswith(f":{pid}")


def test_paused_service(program: str, tmp_path: pathlib.Path) -> None:
    """A service that hangs ends the lease for its holder, at the deadline."""
    member = Member(program, tmp_path / "data", "--redis", "none")
    try:
        with leased.Client(member.url, ttl=2.0) as client:
            lease = client.lock("a").acquire()
            member.process.send_signal(signal.SIGSTOP)
            assert lease.lost.wait(60)
            assert lease.remaining == 0
            member.process.send_signal(signal.SIGCONT)
            eventually("the service answers", member.ready)
            again = client.lock("a", wait=60).acquire()
            assert again.token > lease.token
            again.release()
    finally:
        member.stop()


@MODES
def test_lost_answers_are_repeated(service: Member, prefix: str) -> None:
    """An acquire whose answer is lost finds its grant."""
    with leased.Client(service.url) as client:
        call = client._transport._exchange
        lost: list[Mapping[str, Any]] = []

        def lose(*args: Any, **kwargs: Any) -> Mapping[str, Any]:
            answer = call(*args, **kwargs)
            if args[2].method == "acquire" and not lost:
                lost.append(answer)
                raise leased.Uncertain("the answer was lost")
            return answer

        client._transport._exchange = lose  # type: ignore[assignment]
        lease = client.lock(prefix + "repeat", wait=120).acquire()
        assert lease.token == lost[0]["token"]
        lease.release()


@MODES
def test_release_is_repeated(service: Member, other: leased.Client, prefix: str) -> None:
    """A release that the service does not serve at first frees the lock nevertheless."""
    name = prefix + "release"
    with leased.Client(service.url, ttl=30.0) as client:
        call = client._transport._exchange
        refused = 0

        def refuse(*args: Any, **kwargs: Any) -> Mapping[str, Any]:
            nonlocal refused
            if args[2].method == "release" and refused < 3:
                refused += 1
                raise leased.Unavailable("no leader")
            return call(*args, **kwargs)

        lease = client.lock(name).acquire()
        client._transport._exchange = refuse  # type: ignore[assignment]
        lease.release()
        assert refused == 3
        second = other.try_lock(name)
        assert second is not None and second.token > lease.token
        second.release()


def test_failed_release_is_not_kept_alive(service: Member, other: leased.Client) -> None:
    """The session of a client does not keep a lease whose release has failed."""
    with leased.Client(service.url) as client:
        call = client._transport._exchange
        refused = False

        def refuse(*args: Any, **kwargs: Any) -> Mapping[str, Any]:
            nonlocal refused
            if args[2].method == "release" and not refused:
                refused = True
                raise leased.Invalid("a proxy refuses the request")
            return call(*args, **kwargs)

        with client.lock("s/kept"):  # so that the session is renewed
            lease = client.lock("s/released").acquire()
            client._transport._exchange = refuse  # type: ignore[assignment]
            with pytest.raises(leased.Invalid):
                lease.release()
            other.lock("s/released", wait=60).acquire().release()


@pytest.mark.parametrize("text, seconds", [("10s", 10), ("1m30s", 90), ("500ms", 0.5), ("1h0m0s", 3600)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


def test_gevent(service: Member) -> None:
    """Greenlets share a client: the calls and the keep-alive of one do not block the others."""
    program = """
import gevent.monkey
gevent.monkey.patch_all()
import sys, gevent, leased
with leased.Client(sys.argv[1], ttl=9.0) as client:
    tokens = []
    def work():
        with client.lock("s/gevent", wait=100) as lease:
            gevent.sleep(0.5)
            assert not lease.lost.is_set()
            tokens.append(lease.token)
    with client.lock("s/gevent-kept") as kept:
        gevent.joinall([gevent.spawn(work) for _ in range(8)], raise_error=True)
        assert not kept.lost.is_set()
    assert tokens == sorted(tokens) and len(tokens) == 8
"""
    subprocess.run([sys.executable, "-c", program, service.url], check=True, timeout=120,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "sdk/python/src")})


@pytest.mark.parametrize("new", [leased.Client, leased.aio.Client])
def test_secret_of_a_file(new: Any) -> None:
    """The newline at the end of a file is no part of the secret, and no exception shows a secret."""
    for secret in ("s3cret\n", " s3cret\r\n"):
        client = new(secret=secret)
        headers = client._transport.headers if new is leased.Client else client._http.headers
        assert headers["Authorization"] == "Bearer s3cret"
    for secret in ("s3cret\ns3cret", "s3crét", "\n"):
        with pytest.raises(leased.Invalid, match="secret") as refused:
            new(secret=secret)
        assert "s3cr" not in str(refused.value)


@pytest.mark.parametrize("new", [leased.Client, leased.aio.Client])
def test_secret_without_tls(new: Any) -> None:
    """Others on the network could read it."""
    for url in ("http://127.0.0.1:7420", "localhost:7420", "http://127.1.2.3", "http://[::1]:7420", "https://10.0.0.1"):
        new(url, secret="s3cret")
    for url in ("http://10.0.0.1:7420", "leased.example.com:7420", "http://localhost.example.com", "http://[fe80::1]"):
        new(url)
        with pytest.raises(leased.Invalid, match="without TLS") as refused:
            new(["https://10.0.0.1", url], secret="s3cret")
        assert "s3cr" not in str(refused.value)


@pytest.mark.parametrize("new", [leased.Client, leased.aio.Client])
def test_endpoint_with_a_password(new: Any) -> None:
    """The password has no effect, and would be in every exception that names the member."""
    for url in ("http://alice:s3cret@127.0.0.1:1", "alice:s3cret@127.0.0.1:1", "ftp://alice:s3cret@127.0.0.1"):
        with pytest.raises(leased.Invalid, match="127.0.0.1") as refused:
            new(url)
        assert "s3cret" not in str(refused.value)


def test_connections_that_the_service_has_closed(service: Member) -> None:
    """The client closes them, too: otherwise it would keep as many files open as it ever made calls at a time."""
    with leased.Client(service.url) as client:
        transport = client._transport
        endpoint = transport.endpoints.get()
        many = [transport._connect(endpoint, 60.0) for _ in range(8)]
        transport.idle += [(endpoint, connection) for connection in many]
        for connection in many[:7]:
            connection.sock.shutdown(socket.SHUT_RDWR)
        client.inspect("s/connections")
        assert transport.idle == [(endpoint, many[7])]
        assert [connection.sock for connection in many[:7]] == [None] * 7


def test_block_that_ends_in_another_thread(client: leased.Client, other: leased.Client) -> None:
    """Such as that of a generator. A thread that has entered no block ends the newest one."""
    lock = client.lock("s/elsewhere", permits=2)
    stays = lock.__enter__()
    with lock as leaves:
        thread = threading.Thread(target=lock.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        holders = other.inspect("s/elsewhere")["holders"]
        assert [holder["token"] for holder in holders] == [stays.token] and leaves.token != stays.token
    assert not other.inspect("s/elsewhere").get("holders")


def test_sessions_of_other_ttls_end(client: leased.Client, other: leased.Client) -> None:
    """A session that is not used for one TTL ends. A waiter uses its session."""
    for ttl in (1.0, 1.1, 1.2):
        client.lock("s/ttl", ttl=ttl).acquire().release()
    client.lock("s/ttl").acquire().release()
    with other.lock("s/ttl"):
        waiter = threading.Thread(target=lambda: client.lock("s/ttl", ttl=5.0).acquire().release())
        waiter.start()
        eventually("the idle sessions end", lambda: set(client._core.sessions) == {client._core.ttl, 5.0})
        session = client._core.sessions[5.0]
        time.sleep(7.0)
        assert client._core.sessions[5.0] is session
    waiter.join()
    eventually("the last session ends", lambda: len(client._core.kept) == 1)
