"""The clients when the service hangs, refuses and forgets."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import leased
import leased.aio
from conftest import Member, eventually
from leased._clock import Instant, suspended_clock
from leased._core import Call, Core, Ending, Grant, KeepAlive, Pause, Wanted
from leased._transport import Endpoints, Transport
from leased.errors import from_answer

Exchange = Callable[..., Mapping[str, Any]]


def intercept(client: leased.Client, hook: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Run a hook before each call of a client. It may block or raise."""
    call: Exchange = client._transport._exchange

    def exchange(endpoint: Any, connection: Any, step: Call) -> Mapping[str, Any]:
        hook(step.method, step.body)
        return call(endpoint, connection, step)

    client._transport._exchange = exchange  # type: ignore[assignment]


@pytest.mark.parametrize("prefix", ["strong/", "fast/"])
def test_renewal_waits_for_no_other_call(service: Member, prefix: str) -> None:
    """Releases and a renewal that hang delay neither another renewal nor a deadline."""
    go_on = threading.Event()
    renewals: list[str] = []
    with leased.Client(service.url, ttl=9.0) as client:
        def hang(method: str, body: Mapping[str, Any]) -> None:
            if method == "release" or body.get("resource") == "fast/hangs":
                go_on.wait(120)
            if method == "renew":
                renewals.append(str(body.get("resource", prefix)))

        hanging = client.lock("fast/hangs").acquire()
        with client.lock(prefix + "renewed-in-time") as lease:
            released = [client.lock(f"strong/hanging/{i}").acquire() for i in range(3)]
            threads = [threading.Thread(target=r.release, daemon=True) for r in released]
            intercept(client, hang)
            for thread in threads:
                thread.start()
            assert hanging.lost.wait(60)
            eventually("renewals", lambda: renewals.count(lease.resource if prefix == "fast/" else prefix) > 3)
            assert not lease.lost.is_set()
            go_on.set()
        for thread in threads:
            thread.join()


def test_refused_renewal_ends_only_its_lease(service: Member) -> None:
    """A secret or a right that is revoked ends a lease at its deadline, and no other lease."""
    with leased.Client(service.url, ttl=9.0) as client:
        def refuse(method: str, body: Mapping[str, Any]) -> None:
            if method == "renew" and body.get("resource") == "fast/forbidden":
                raise leased.Forbidden("the right is revoked")

        with client.lock("fast/allowed") as allowed, pytest.raises(leased.LeaseLost):
            with client.lock("fast/forbidden") as lease:
                intercept(client, refuse)
                assert lease.lost.wait(60)
                assert not allowed.lost.is_set()


def test_session_that_ends_before_the_acquire(service: Member) -> None:
    """An acquire whose session has ended opens another one, and the other leases of the session are lost."""
    with leased.Client(service.url, ttl=9.0) as client:
        first = client.lock("s/first").acquire()
        ended: list[str] = []

        def end(method: str, body: Mapping[str, Any]) -> None:
            if method == "acquire" and not ended:
                ended.append(body["sessionId"])
                service.call("close-session", {"sessionId": body["sessionId"]})

        intercept(client, end)
        with client.lock("s/second", wait=60) as second:
            assert second.token > first.token
            assert first.lost.wait(60)


def test_closed_client_ends_its_waiters(service: Member, other: leased.Client) -> None:
    held = other.lock("s/closing").acquire()
    client = leased.Client(service.url)
    failed: list[Exception] = []

    def wait() -> None:
        try:
            client.lock("s/closing").acquire()
        except leased.LeasedError as error:
            failed.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    eventually("the waiter", lambda: bool(other.inspect("s/closing").get("waiters")))
    mine = client.lock("s/mine").acquire()
    client.close()
    waiter.join(60)
    assert "closed" in str(failed[0]) and mine.lost.is_set()
    calls: list[Callable[[], object]] = [client.lock("s/closing").acquire, lambda: client.inspect("s/closing")]
    for call in calls:
        with pytest.raises(leased.Invalid, match="closed"):
            call()
    held.release()
    taken = other.lock("s/mine", wait=60).acquire()
    taken.release()


def test_held_attempt_is_not_released(service: Member, other: leased.Client) -> None:
    """A try_lock that fails costs one call, beside the renewals of the session."""
    calls: list[str] = []
    with other.lock("s/held"), leased.Client(service.url) as client:
        intercept(client, lambda method, body: calls.append(method))
        assert client.try_lock("s/held") is None
        assert client.try_lock("s/held") is None
        time.sleep(0.2)
        assert [call for call in calls if call != "renew"] == ["open-session", "acquire", "acquire"]


def test_lost_event_reads_the_clock(client: leased.Client) -> None:
    """After a pause of the whole process the event is set before the keep-alive thread has run."""
    lease = client.lock("s/clock").acquire()
    assert not lease.lost.is_set()
    client._core.kept.clear()  # nothing renews it or ends it
    now = Instant.now()
    lease._grant.kept.renewed = Instant(now.monotonic, now.boottime - 10)  # a suspended machine
    assert lease.lost.is_set() and lease.lost.wait(0.01) and lease.remaining == 0
    client._core._extend(lease._grant.kept, [lease._grant], Instant.now(), {lease.token})
    assert lease.lost.is_set(), "a late answer must not revive a lease"


@pytest.mark.parametrize("prefix", ["strong/", "fast/"])
def test_deadline_counts_from_before_the_request(service: Member, prefix: str) -> None:
    """The time that a request takes is no part of the lease, neither of a grant nor of a renewal."""
    with leased.Client(service.url, ttl=30.0) as client:
        intercept(client, lambda method, body: time.sleep(1.0))
        with client.lock(prefix + "before") as lease:
            assert lease.remaining < 29.0
            kept = lease._grant.kept
            granted, kept.doubt = kept.renewed, True
            client._wake.set()
            eventually("a renewal", lambda: kept.renewed is not granted)
            assert lease.remaining < 29.0


@contextlib.contextmanager
def stub(status: int, text: bytes, leader: str = "", path: str = "") -> Iterator[str]:
    """Run a member that gives the same answer to all calls whose path begins like this."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Answer."""
            self.send_response(status if self.path.startswith(path) else 404)
            self.send_header("Leased-Leader", leader)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            """Do not log."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("status, text", [(503, b'{"code": "not-leader", "message": "no leader"}'),
                                          (500, b'{"code": "internal"}'), (500, b""), (502, b"<html>")])
def test_member_that_fails_is_left(service: Member, status: int, text: bytes) -> None:
    with stub(status, text) as failing:
        members = [failing, service.url]
        with leased.Client(members) as client, client.lock("s/left", wait=60):
            pass

        async def test() -> None:
            async with leased.aio.Client(members) as client:
                async with client.lock("s/left", wait=60):
                    pass
        asyncio.run(test())


def test_renewal_leaves_a_member_that_is_none() -> None:
    """A renewal is repeated after an answer that does not come from a member. It goes to another one."""
    with stub(404, b"<html>") as other, stub(200, b"{}") as member:
        transport = Transport(Endpoints([other, member]), None, None)
        with pytest.raises(leased.Invalid, match="not JSON"):
            transport.call(Call("renew", {"sessionId": "s"}))
        assert transport.call(Call("renew", {"sessionId": "s"})) == {}


def test_unreachable_leader_is_avoided() -> None:
    """A client does not follow to a leader that it cannot reach, until some time has passed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with stub(200, b"{}", leader=address) as follower:
            endpoints = Endpoints([address, follower])
            transport = Transport(endpoints, None, None)
            unheard, call = Call("renew", {"sessionId": "s"}, 0.3), Call("renew", {"sessionId": "s"}, 60.0)
            for _ in range(2):
                with pytest.raises(leased.Uncertain):
                    transport.call(unheard)
                for _ in range(3):
                    assert transport.call(call) == {}
                now = Instant.now()
                endpoints.failed[endpoints.all[0]] = Instant(now.monotonic - 30.0, now.boottime - 30.0)
                assert transport.call(call) == {}


def test_member_where_a_caller_waits_is_followed() -> None:
    """That an acquire is not answered while it waits for a lock is no failure of the member."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with stub(200, b"{}", leader=address) as follower:
            members, wait = [address, follower], Call("acquire", {"sessionId": "s"}, 0.3, waits=True)
            transport = Transport(Endpoints(members), None, None)
            with pytest.raises(leased.Uncertain):
                transport.call(wait)
            assert transport.endpoints.get() is transport.endpoints.all[1], "it may be silent, after all"
            assert transport.call(Call("renew", {"sessionId": "s"})) == {}
            assert transport.endpoints.get() is transport.endpoints.all[0]

            async def test() -> None:
                async with leased.aio.Client(members) as client:
                    with pytest.raises(leased.Uncertain):
                        await client._call(wait)
                    assert await client._call(Call("renew", {"sessionId": "s"})) == {}
                    assert client._endpoints.get() is client._endpoints.all[0]
            asyncio.run(test())


def test_endpoint_with_a_path() -> None:
    """Such as that of a proxy in front of the service."""
    with stub(200, b'{"lock": {}}', path="/leased/v1/inspect") as proxy:
        with leased.Client(proxy + "/leased/") as client:
            assert client.inspect("a") == {}

        async def test() -> None:
            async with leased.aio.Client(proxy + "/leased/") as client:
                assert await client.inspect("a") == {}
        asyncio.run(test())


@pytest.mark.parametrize("prefix", ["aio/", "fast/aio/"])
@pytest.mark.parametrize("before", [True, False])
def test_cancelled_at_every_call(service: Member, prefix: str, before: bool) -> None:
    """Wherever a task is cancelled, before or after the service has served its call, the lock becomes free."""
    async def cancelled(client: leased.aio.Client, name: str, at: int) -> bool:
        call = client._call
        count = 0

        async def interrupt(step: Any) -> Mapping[str, Any]:
            nonlocal count
            count += asyncio.current_task() is work
            if count != at or asyncio.current_task() is not work:
                return await call(step)
            if not before:
                with contextlib.suppress(leased.LeasedError):
                    await call(step)
            work.cancel()
            await asyncio.sleep(60)
            raise AssertionError("not cancelled")

        async def hold() -> None:
            async with client.lock(name):
                pass

        client._call = interrupt  # type: ignore[assignment]
        work = asyncio.create_task(hold())
        await asyncio.wait([work])
        return work.cancelled()

    async def test() -> None:
        async with leased.aio.Client(service.url) as other:
            for at in range(1, 10):
                name = f"{prefix}cancel/{before}/{at}"
                async with leased.aio.Client(service.url, ttl=30.0) as client:
                    again = await cancelled(client, name, at)
                    while client._core.endings:
                        await asyncio.sleep(0.02)
                    assert not (await other.inspect(name)).get("holders")
                    if not again:
                        assert at > 3
                        return
    asyncio.run(asyncio.wait_for(test(), 240))


def test_tasks_share_a_lock(service: Member) -> None:
    """Each task releases its own lease of a lock that they share."""
    async def test() -> None:
        async with leased.aio.Client(service.url) as client:
            lock = client.lock("aio/permits", permits=2)
            entered, leave = asyncio.Event(), asyncio.Event()

            async def stay() -> None:
                async with lock as lease:
                    entered.set()
                    await leave.wait()
                    holders = (await client.inspect("aio/permits"))["holders"]
                    assert [h["token"] for h in holders] == [lease.token]

            async with lock:
                task = asyncio.create_task(stay())
                await entered.wait()
            leave.set()
            await task
    asyncio.run(asyncio.wait_for(test(), 120))


def test_renewal_without_a_thread(service: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that can start no more threads renews its leases nevertheless."""
    with leased.Client(service.url, ttl=9.0) as client, client.lock("s/threads") as lease:
        renewals: list[str] = []
        intercept(client, lambda method, body: renewals.append(method))

        def fail(steps: Any) -> threading.Thread:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(client, "_spawn", fail)
            eventually("renewals", lambda: renewals.count("renew") > 3)
        assert not lease.lost.is_set()


def test_limit_of_a_try(service: Member) -> None:
    """An attempt that does not wait ends soon, whatever fails."""
    with leased.Client("http://127.0.0.1:1", ttl=60.0) as nobody, pytest.raises(leased.Unavailable) as unreachable:
        began = time.monotonic()
        nobody.try_lock("s/try")
    assert unreachable.value.code == "unreachable" and time.monotonic() - began < 30
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and never answers
        with leased.Client(f"http://127.0.0.1:{silent.getsockname()[1]}", ttl=2.0) as nobody:
            with pytest.raises(leased.Unavailable):
                nobody.try_lock("s/try")
    slow = pytest.raises((leased.LeaseLost, leased.Unavailable, leased.Uncertain))  # an answer may be lost, too
    with leased.Client(service.url, ttl=1.0) as client, slow:
        intercept(client, lambda method, body: time.sleep(1.1))  # slower than the TTL
        client.try_lock("s/try")


@pytest.mark.parametrize("wait", [0.0, 2.0, 60.0, None])
def test_room_for_another_member(wait: float | None) -> None:
    """An acquire whose answer was lost is repeated, with the same nonce, before its time is over."""
    steps = Core("h", 10.0, lambda grant: None, lambda: None).acquire(Wanted(("a",), wait=wait))
    assert isinstance(opening := next(steps), Call) and opening.method == "open-session" and opening.limit <= 4
    first = steps.send({"sessionId": "s", "ttl": "10s"})
    assert isinstance(first, Call) and first.limit <= min(10 if wait is None else wait, 10) + 4
    assert isinstance(steps.throw(leased.Uncertain("no answer")), Pause)
    again = next(steps)
    assert isinstance(again, Call) and again.body["nonce"] == first.body["nonce"]
    steps.close()


def test_answered_attempt_is_not_repeated() -> None:
    """A member withdraws an attempt in efficiency mode that it answers with an error, also after the next call."""
    core = Core("h", 10.0, lambda grant: None, lambda: None)
    core.modes["a"] = "efficiency"
    steps = core.acquire(Wanted(("a",)))
    attempts: list[str] = []
    call = next(steps)
    unavailable, uncertain = from_answer({"code": "unavailable"}), from_answer({"code": "uncertain"})
    for error in [unavailable, leased.Unavailable("no member can be reached"), uncertain,
                  leased.Uncertain("no answer"), unavailable]:
        assert isinstance(call, Call)
        attempts.append(call.body["attempt"])
        assert isinstance(steps.throw(error), Pause)
        call = next(steps)
    assert isinstance(call, Call) and call.body["attempt"] == attempts[4], "a member may have granted it"
    assert attempts[0] != attempts[1] == attempts[2] != attempts[3] == attempts[4]
    steps.close()


def test_other_calls_without_an_answer() -> None:
    """A call without an answer that did not carry the name of the attempt does not have it repeated."""
    core = Core("h", 10.0, lambda grant: None, lambda: None)
    steps = core.acquire(Wanted(("a",)))
    assert isinstance(next(steps), Call)
    call = steps.send({"sessionId": "s", "ttl": "10s"})
    assert isinstance(call, Call) and "attempt" not in call.body
    assert isinstance(steps.throw(leased.Uncertain("no answer")), Pause)
    assert isinstance(next(steps), Call)
    first = steps.throw(from_answer({"code": "mode-mismatch", "resource": "a", "mode": "efficiency"}))
    assert isinstance(steps.throw(from_answer({"code": "unavailable"})), Pause)
    second = next(steps)
    assert isinstance(first, Call) and isinstance(second, Call) and first.body["attempt"] != second.body["attempt"]
    steps.close()


def test_members_that_disagree_about_a_mode() -> None:
    """A member that has missed a migration does not make a set look as if its locks had two modes."""
    core = Core("h", 10.0, lambda grant: None, lambda: None)
    steps = core.acquire(Wanted(("a", "b"), wait=0))
    assert isinstance(next(steps), Call)
    assert isinstance(steps.send({"sessionId": "s", "ttl": "10s"}), Call)
    mismatch = {"code": "mode-mismatch", "resource": "a"}
    assert isinstance(steps.throw(from_answer({**mismatch, "mode": "efficiency"})), Call)
    assert isinstance(steps.throw(from_answer({**mismatch, "mode": "correctness"})), Pause)
    steps.close()


def test_event_of_a_later_version() -> None:
    """A stream goes on after an event that the client does not know."""
    core = Core("h", 10.0, lambda grant: None, lambda: None)
    kept = KeepAlive({}, 10.0, Instant.now())
    core.kept.add(kept)
    watch = next(core._watch(kept))
    assert isinstance(watch, Call) and watch.each is not None
    watch.each({})
    assert not kept.doubt
    watch.each({"type": "lost"})
    assert kept.doubt


def test_timeout_of_the_caller(client: leased.Client, other: leased.Client) -> None:
    """A TimeoutError that a signal handler raises ends the call. It is no failure of the network."""
    def stop(number: int, frame: Any) -> None:
        raise TimeoutError("the time of the caller is over")

    known = signal.signal(signal.SIGALRM, stop)
    try:
        with other.lock("s/alarm"):
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with pytest.raises(TimeoutError, match="of the caller"):
                client.lock("s/alarm", wait=8).acquire()
            eventually("no waiter", lambda: not other.inspect("s/alarm").get("waiters"))
    finally:
        signal.signal(signal.SIGALRM, known)


@pytest.mark.parametrize("names", [("fast/mixed", "strong/mixed"), ("a-strong/mixed", "fast/mixed")])
def test_set_of_both_modes_is_refused(client: leased.Client, names: tuple[str, str]) -> None:
    """The service names the mode of a lock that does not have the expected one: another lock for each mode."""
    acquires: list[str] = []

    def count(method: str, body: Mapping[str, Any]) -> None:
        if method == "acquire":
            acquires.append(body["mode"])
            assert len(acquires) < 5, "the acquire does not end"

    intercept(client, count)
    with pytest.raises(leased.Invalid, match="one mode"):
        client.try_lock(names)


def test_unused_grant_is_not_used_again(service: Member, other: leased.Client) -> None:
    """A lease in efficiency mode could not be renewed after its wait, and is released while the acquire goes on."""
    held = other.lock("fast/unused").acquire()
    lost, taken, released = threading.Event(), threading.Event(), threading.Event()
    with leased.Client(service.url, ttl=9.0) as client:
        call: Exchange = client._transport._exchange

        def exchange(endpoint: Any, connection: Any, step: Call) -> Mapping[str, Any]:
            if step.method == "renew" and "resource" in step.body and not lost.is_set():
                lost.set()
                raise leased.Uncertain("the answer is lost")
            if step.method == "release":
                taken.wait(3)  # the release is later than the next acquire
            answer = call(endpoint, connection, step)
            if step.method == "release":
                released.set()
            return answer

        client._transport._exchange = exchange  # type: ignore[assignment]
        free = threading.Timer(8.0, held.release)  # after the time for a renewal, which is a third of the TTL
        free.start()
        lease = client.lock("fast/unused").acquire()
        taken.set()
        assert released.wait(60)
        assert [holder["token"] for holder in other.inspect("fast/unused")["holders"]] == [lease.token]
        free.join()
        lease.release()


def held_by(lock: Mapping[str, Any]) -> list[str]:
    """Return the holders of a lock."""
    return [str(holder.get("holder", "")) for holder in lock.get("holders") or []]


def test_close_repeats_its_calls(service: Member, other: leased.Client) -> None:
    """A client that is closed releases everything, also what it could not release before, and if calls fail."""
    names = ["s/ends", "fast/ends", "fast/abandoned"]
    failed: list[str] = []

    def fail(method: str, body: Mapping[str, Any]) -> None:
        if method in ("release", "close-session") and failed.count(method) < 4:
            failed.append(method)
            raise leased.LimitExceeded("not now")

    client = leased.Client(service.url, ttl=30.0)
    leases = [client.lock(name).acquire() for name in names]
    intercept(client, fail)
    with pytest.raises(leased.LimitExceeded):
        leases[2].release()
    client.close()
    assert [held_by(other.inspect(name)) for name in names] == [[], [], []]

    async def test() -> None:
        failed.clear()
        client = leased.aio.Client(service.url, ttl=30.0)
        leases = [await client.lock(name).acquire() for name in names]
        call = client._exchange

        async def exchange(endpoint: Any, step: Call) -> Mapping[str, Any]:
            fail(step.method, step.body)
            return await call(endpoint, step)

        client._exchange = exchange  # type: ignore[assignment]
        with pytest.raises(leased.LimitExceeded):
            await leases[2].release()
        await asyncio.sleep(0.1)  # it is repeated in the background
        await client.close()
        assert client._http.is_closed
    asyncio.run(asyncio.wait_for(test(), 240))
    assert [held_by(other.inspect(name)) for name in names] == [[], [], []]


def test_close_ends() -> None:
    """The calls of a close are repeated for a limited time, whatever the TTL."""
    core = Core("h", 3600.0, lambda grant: None, lambda: None)
    kept = KeepAlive({"sessionId": "s"}, 3600.0, Instant.now())
    core.kept.add(kept)
    [steps] = core.close()
    assert isinstance(call := next(steps), Call) and call.limit <= 4
    assert isinstance(steps.throw(leased.Uncertain("no answer")), Pause)
    again = next(steps)
    assert isinstance(again, Call) and again.body == call.body
    [late] = [core._discard(Ending(kept, call), Instant(0.0, 0.0))]
    next(late)
    with pytest.raises(StopIteration):
        late.throw(leased.Uncertain("no answer"))


def test_grant_after_the_close(service: Member, other: leased.Client) -> None:
    """A lease in efficiency mode that is granted while its client is closed is released."""
    granted, closed = threading.Event(), threading.Event()
    client = leased.Client(service.url, ttl=30.0)
    call: Exchange = client._transport._exchange

    def exchange(endpoint: Any, connection: Any, step: Call) -> Mapping[str, Any]:
        answer = call(endpoint, connection, step)
        if step.method == "acquire" and "attempt" in step.body:
            granted.set()
            closed.wait(60)
        return answer

    client._transport._exchange = exchange  # type: ignore[assignment]
    failed: list[Exception] = []

    def acquire() -> None:
        try:
            client.lock("fast/late").acquire()
        except leased.LeasedError as error:
            failed.append(error)

    thread = threading.Thread(target=acquire)
    thread.start()
    assert granted.wait(60)
    client.close()
    closed.set()
    thread.join(60)
    assert failed and held_by(other.inspect("fast/late")) == []

    async def test() -> None:
        granted, closed = asyncio.Event(), asyncio.Event()
        client = leased.aio.Client(service.url, ttl=30.0)
        call = client._exchange

        async def exchange(endpoint: Any, step: Call) -> Mapping[str, Any]:
            answer = await call(endpoint, step)
            if step.method == "acquire" and "attempt" in step.body:
                granted.set()
                await closed.wait()
            return answer

        client._exchange = exchange  # type: ignore[assignment]
        task = asyncio.create_task(client.lock("fast/late").acquire())
        await granted.wait()
        await client.close()
        closed.set()
        with pytest.raises(leased.LeasedError):
            await task
        assert client._http.is_closed
    asyncio.run(asyncio.wait_for(test(), 240))
    assert held_by(other.inspect("fast/late")) == []


@pytest.mark.parametrize("prefix", ["strong/", "fast/"])
def test_release_does_not_wait_for_the_service(service: Member, other: leased.Client, prefix: str,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that the service does not serve ends soon, and goes on in the background."""
    monkeypatch.setattr("leased._core.REPEAT", 0.5)
    away = True

    def fail(method: str, body: Mapping[str, Any]) -> None:
        if method == "release" and away:
            raise leased.Unavailable("not now")

    with leased.Client(service.url, ttl=30.0) as client:
        lease = client.lock(prefix + "away").acquire()
        intercept(client, fail)
        began = time.monotonic()
        with pytest.raises(leased.Unavailable):
            lease.release()
        assert time.monotonic() - began < 20
        assert held_by(other.inspect(prefix + "away"))
        away = False
        eventually("the release", lambda: not held_by(other.inspect(prefix + "away")), 9)


def test_one_silent_member_leaves_time_for_another() -> None:
    """However long the TTL is, a member that does not answer is left soon."""
    assert KeepAlive({}, 3600.0, Instant.now()).limit() <= 4


def test_session_with_waiters_is_not_idle() -> None:
    """A session that gets no new leases stays open while acquires wait in it, also between two calls."""
    core = Core("h", 10.0, lambda grant: None, lambda: None)
    steps = core.acquire(Wanted(("a",)))
    assert isinstance(next(steps), Call)
    assert isinstance(steps.send({"sessionId": "s", "ttl": "10s"}), Call)
    [session] = core.kept
    core._retire(session)  # another acquire found that its lease is lost
    core.step()
    assert session in core.kept
    assert isinstance(steps.throw(leased.Uncertain("no answer")), Pause)
    core.step()
    assert session in core.kept
    steps.close()
    core.step()
    assert session not in core.kept


def test_clock_goes_on_while_the_machine_is_suspended() -> None:
    """The choice of the clock by platform. Other platforms have no such clock, or time.monotonic is one."""
    assert suspended_clock("linux", SimpleNamespace(CLOCK_MONOTONIC=1, CLOCK_MONOTONIC_RAW=4, CLOCK_BOOTTIME=7)) == 7
    darwin = SimpleNamespace(CLOCK_MONOTONIC=6, CLOCK_MONOTONIC_RAW=4, CLOCK_UPTIME_RAW=8)
    assert suspended_clock("darwin", darwin) == 4, "mach_continuous_time"
    assert suspended_clock("freebsd14", SimpleNamespace(CLOCK_MONOTONIC=4, CLOCK_MONOTONIC_RAW=4)) is None
    assert suspended_clock("win32", SimpleNamespace()) is None
    assert suspended_clock(sys.platform, time) is not None or sys.platform not in ("linux", "darwin")


def test_close_without_threads(service: Member, other: leased.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the exit of the interpreter no threads can be started. A client that is closed then releases everything."""
    names = ["s/exit", "fast/exit/1", "fast/exit/2"]
    client = leased.Client(service.url, ttl=30.0)
    for name in names:
        client.lock(name).acquire()

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        client.close()
    assert [held_by(other.inspect(name)) for name in names] == [[], [], []]


def test_close_while_others_release() -> None:
    """A lease that another thread releases during a close does not keep the others from their end."""
    class Event:
        def __init__(self, _grant: Grant) -> None:
            pass

        def set(self) -> None:
            for other in grants:  # as another thread may do
                next(core.release(other), None)

    core = Core("test", 10.0, Event, lambda: None)
    session = KeepAlive({"sessionId": "s"}, 10.0, Instant.now())
    grants = [Grant((str(i),), i, "correctness", 0, session, {"sessionId": "s", "nonce": i}) for i in range(1, 4)]
    for grant in grants:
        grant.lost = Event(grant)
    session.grants.update(grants)
    core.kept.add(session)
    [end] = core.close()
    call = next(end)
    assert isinstance(call, Call) and call.method == "close-session"


def test_keep_alive_thread_that_cannot_start(service: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next acquire starts the thread, or the lease would not be renewed, and its end not noticed."""
    renewed = threading.Event()

    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def notice(method: str, _body: Mapping[str, Any]) -> None:
        if method == "renew":
            renewed.set()

    with leased.Client(service.url, ttl=3.0) as client:
        intercept(client, notice)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(RuntimeError):
                client.lock("s/thread").acquire()
        with client.lock("s/thread"):
            assert renewed.wait(30)


def test_break_whose_answer_is_lost(service: Member, other: leased.Client) -> None:
    """A repeated break finds no lease, because the first one has ended it."""
    with leased.Client(service.url) as client:
        call: Exchange = client._transport._exchange
        lost: list[str] = []

        def lose(endpoint: Any, connection: Any, step: Call) -> Mapping[str, Any]:
            answer = call(endpoint, connection, step)
            if step.method == "break" and not lost:
                lost.append(step.method)
                raise leased.Uncertain("the answer is lost")
            return answer

        client._transport._exchange = lose  # type: ignore[assignment]
        held = other.lock("s/broken").acquire()
        client.break_lease("s/broken", held.token)
        assert lost and held.lost.wait(30)
        with pytest.raises(leased.LeaseLost):
            client.break_lease("s/broken", held.token)


def test_uncertain_call_stays_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that says that nothing happened is about the last call only."""
    steps = Core("test", 10.0, lambda grant: None, lambda: None).repeat(Call("break", {}), 1.0)
    next(steps)
    monkeypatch.setattr(Instant, "elapsed", lambda began: 0.5)
    assert isinstance(steps.throw(leased.Uncertain("no answer")), Pause)
    monkeypatch.setattr(Instant, "elapsed", lambda began: 1.0)
    assert isinstance(steps.send({}), Call)
    with pytest.raises(leased.Uncertain):
        steps.throw(leased.Unavailable("no leader"))


class Stop(BaseException):
    """What a signal handler raises."""


def test_abandoned_attempt_is_withdrawn() -> None:
    """In efficiency mode only a copy of an acquire finds its grant, whose token the release needs."""
    core = Core("h", 10.0, lambda grant: None, lambda: None)
    core.modes["a"] = "efficiency"
    for during_the_pause in (False, True):
        steps = core.acquire(Wanted(("a",)))
        first = next(steps)
        assert isinstance(first, Call)
        if during_the_pause:
            assert isinstance(steps.throw(leased.Uncertain("no answer")), Pause)
        with pytest.raises(Stop):
            steps.throw(Stop())
        [ending] = core.unwanted
        core.unwanted = []
        end = core._discard(ending)
        copy = next(end)
        assert isinstance(copy, Call) and copy.body == {**first.body, "wait": "0ms"}
        assert isinstance(end.throw(leased.Uncertain("no answer")), Pause)
        assert isinstance(next(end), Call)
        release = end.send({"resources": ["a"], "token": 7})
        assert isinstance(release, Call) and release.method == "release"
        assert release.body == {"resource": "a", "token": 7}
        with pytest.raises(StopIteration):
            end.send({})
    steps = core.acquire(Wanted(("a",)))
    assert isinstance(next(steps), Call)
    assert isinstance(steps.throw(from_answer({"code": "unavailable"})), Pause)
    steps.close()
    assert not core.unwanted, "the member has withdrawn it"


@pytest.mark.parametrize("prefix", ["s/", "fast/"])
@pytest.mark.parametrize("closed", [False, True])
def test_caller_that_is_interrupted_before_the_answer(service: Member, other: leased.Client, prefix: str,
                                                      closed: bool) -> None:
    """The lock that it was granted becomes free, also if the client is closed at once, as at the end of a program."""
    name = f"{prefix}interrupted/{closed}"
    with leased.Client(service.url, ttl=30.0) as client:
        call: Exchange = client._transport._exchange

        def exchange(endpoint: Any, connection: Any, step: Call) -> Mapping[str, Any]:
            answer = call(endpoint, connection, step)
            if step.method == "acquire" and step.body["wait"] != "0ms":
                raise Stop
            return answer

        client._transport._exchange = exchange  # type: ignore[assignment]
        with pytest.raises(Stop):
            client.lock(name, wait=60).acquire()
        if closed:
            client.close()
        eventually("the release", lambda: held_by(other.inspect(name)) == [], limit=20)


def test_acquire_that_gives_up_is_withdrawn() -> None:
    """If its answers are lost, the service may have granted it all the same."""
    core = Core("h", 10.0, lambda grant: None, lambda: None)
    core.modes["a"] = "efficiency"
    steps = core.acquire(Wanted(("a",), wait=-60.0))
    assert isinstance(next(steps), Call)
    with pytest.raises(leased.Uncertain):
        steps.throw(leased.Uncertain("no answer"))
    [ending] = core.unwanted
    assert ending.call.method == "acquire"


def test_efficiency_mode_needs_no_leader() -> None:
    """A client that does not know the mode of a lock finds it out although no session can be opened."""
    core = Core("h", 1.0, lambda grant: SimpleNamespace(set=lambda: None), lambda: None)
    steps = core.acquire(Wanted(("a",)))
    unreachable, no_leader = leased.Unavailable("no member can be reached"), from_answer({"code": "not-leader"})
    for error in (unreachable, no_leader):
        opening = next(steps)
        assert isinstance(opening, Call) and opening.method == "open-session"
        assert opening.limit > 3, "the member waits for a leader, however short the TTL is"
        assert isinstance(steps.throw(error), Pause)
    call = next(steps)
    assert isinstance(call, Call) and call.body["mode"] == "efficiency"
    with pytest.raises(StopIteration):
        steps.send({"resources": ["a"], "token": 1, "ttl": "10s", "mode": "efficiency"})
    again = next(core.acquire(Wanted(("a",))))
    assert isinstance(again, Call) and again.body["mode"] == "efficiency"

    other = core.acquire(Wanted(("b",)))  # is in correctness mode
    next(other)
    assert isinstance(other.throw(no_leader), Pause)
    next(other)
    opening = other.throw(from_answer({"code": "mode-mismatch", "resource": "b", "mode": "correctness"}))
    assert isinstance(opening, Call) and opening.method == "open-session"
    shared = core.acquire(Wanted(("c",), shared=True))  # exists in correctness mode only
    next(shared)
    assert isinstance(shared.throw(no_leader), Pause)
    opening = next(shared)
    assert isinstance(opening, Call) and opening.method == "open-session"


def test_attempt_stays_in_its_session() -> None:
    """The session of an attempt whose answer was lost may hold its grant, also if new leases get another session."""
    core = Core("h", 10.0, lambda grant: None, lambda: None)
    steps = core.acquire(Wanted(("a",)))
    assert isinstance(next(steps), Call)
    first = steps.send({"sessionId": "s", "ttl": "10s"})
    assert isinstance(steps.throw(leased.Uncertain("no answer")), Pause)
    [session] = core.kept
    core._retire(session)  # as the acquire of another thread does
    again = next(steps)
    assert isinstance(first, Call) and isinstance(again, Call) and again.method == "acquire"
    assert again.body["nonce"] == first.body["nonce"] and again.body["sessionId"] == "s"


def test_loss_that_overtakes_its_grant() -> None:
    """A lease that was broken before its holder got the answer is not used."""
    core = Core("h", 10.0, lambda grant: None, lambda: None)
    steps = core.acquire(Wanted(("a",)))
    assert isinstance(next(steps), Call)
    call = steps.send({"sessionId": "s", "ttl": "10s"})
    [session] = core.kept
    watch = next(core._watch(session))
    assert isinstance(call, Call) and isinstance(watch, Call) and watch.each is not None
    watch.each({"type": "lost", "nonce": call.body["nonce"], "token": 1})
    assert isinstance(steps.send({"resources": ["a"], "token": 1, "mode": "correctness"}), Pause)
    again = next(steps)
    assert isinstance(again, Call) and again.method == "open-session"


def test_loss_that_an_acquire_finds() -> None:
    """If the service says that the session is gone, its leases do not wait for their next renewal."""
    core = Core("h", 3600.0, lambda grant: None, lambda: None)
    steps = core.acquire(Wanted(("a",)))
    assert isinstance(next(steps), Call)
    assert isinstance(steps.send({"sessionId": "s", "ttl": "1h"}), Call)
    assert core.step()[0] == []
    assert isinstance(steps.throw(from_answer({"code": "expired"})), Pause)
    [renewal] = core.step()[0]
    call = next(renewal)
    assert isinstance(call, Call) and call.method == "renew"


def test_renewals_carry_the_metadata() -> None:
    """In efficiency mode, a renewal that was under way writes the metadata that it has read before."""
    core = Core("h", 10.0, lambda grant: None, lambda: None)
    kept = KeepAlive({"resource": "a", "token": 7}, 10.0, Instant.now())
    core.kept.add(kept)
    grant = Grant(("a",), 7, "efficiency", 0, kept, kept.name)
    describe = core.describe(grant, {"done": "40%"})
    assert isinstance(next(describe), Call)
    renewal = next(core._renew(kept))
    assert isinstance(renewal, Call) and "metadata" not in renewal.body, "it may be refused"
    with pytest.raises(StopIteration):
        describe.send({})
    renewal = next(core._renew(kept))
    assert isinstance(renewal, Call) and renewal.body == {**kept.name, "metadata": {"done": "40%"}}
    assert kept.end().body == kept.name


def test_election_ends_with_the_client(service: Member, other: leased.Client) -> None:
    """A close is no error of a candidate."""
    ended: list[str] = []
    client = leased.Client(service.url)

    def campaign() -> None:
        for _ in client.elect("s/campaign"):
            raise AssertionError("elected")
        ended.append("without an exception")

    with other.lock("s/campaign"):
        thread = threading.Thread(target=campaign)
        thread.start()
        eventually("the candidate", lambda: bool(other.inspect("s/campaign").get("waiters")))
        client.close()
        thread.join(60)
        assert ended

        async def test() -> None:
            async with leased.aio.Client(service.url) as client:
                async def campaign() -> None:
                    async for _ in client.elect("s/campaign"):
                        raise AssertionError("elected")

                task = asyncio.create_task(campaign())
                while not (await client.inspect("s/campaign")).get("waiters"):
                    await asyncio.sleep(0.02)
            await task
        asyncio.run(asyncio.wait_for(test(), 120))


def test_system_without_poll(service: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as Windows."""
    with leased.Client(service.url) as client:
        monkeypatch.delattr("select.poll")
        for _ in range(3):
            client.inspect("s/poll")
        assert len(client._transport.idle) == 1


@pytest.mark.parametrize("prefix", ["s/", "fast/"])
@pytest.mark.parametrize("function", ["_core.Place.leave", "_client.Lease.__init__", "_client.Entered.push"])
def test_caller_that_is_interrupted_after_the_grant(client: leased.Client, other: leased.Client, prefix: str,
                                                    function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could release its lease, which the client would renew forever."""
    def interrupt(called: Any, *_: Any) -> None:
        if getattr(called, "grant", called) is not None:  # a place is also left before the grant
            raise Stop

    name = f"{prefix}interrupted/{function}"
    with monkeypatch.context() as patch:
        patch.setattr(f"leased.{function}", interrupt)
        with pytest.raises(Stop):
            client.lock(name, wait=60).__enter__()
    eventually("the release", lambda: not other.inspect(name).get("holders"), limit=30)


def test_cancelled_close_goes_on(service: Member, other: leased.Client) -> None:
    """The next close waits for it."""
    async def test() -> None:
        client = leased.aio.Client(service.url, ttl=60.0)
        await client.lock("aio/closing").acquire()
        exchange, asked, go_on = client._exchange, asyncio.Event(), asyncio.Event()

        async def wait(endpoint: Any, call: Call) -> Mapping[str, Any]:
            if call.method == "close-session":
                asked.set()
                await go_on.wait()
            return await exchange(endpoint, call)

        client._exchange = wait  # type: ignore[assignment]
        closing = asyncio.create_task(client.close())
        await asked.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        go_on.set()
        await client.close()
    asyncio.run(test())
    assert not other.inspect("aio/closing").get("holders")


def test_forked_child_forgets_the_leases_of_all_clients(service: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if hooks fail: in debug mode, asyncio refuses to set an event for a loop of another thread."""
    def fail() -> None:
        raise RuntimeError("Non-thread-safe operation")

    with leased.Client(service.url) as failing, leased.Client(service.url) as following:
        leases = [failing.lock(f"s/forgotten/{i}").acquire() for i in range(3)]
        leases.append(following.lock("s/forgotten").acquire())
        with monkeypatch.context() as patch:
            for lease in leases[:3]:
                patch.setattr(lease.lost, "set", fail)
            patch.setattr("leased._client._clients", [SimpleNamespace(_forget=fail), failing, following])
            pid = os.fork()
            if pid == 0:
                os._exit(sum(lease.remaining > 0 for lease in leases))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
