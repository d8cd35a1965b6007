"""The client for asyncio against a real service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

import leased
import leased.aio
from conftest import Member


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))


@pytest.mark.parametrize("prefix", ["aio/", "fast/aio/"])
def test_lock_and_cancellation(service: Member, prefix: str) -> None:
    async def test() -> None:
        async with leased.aio.Client(service.url) as client, leased.aio.Client(service.url) as other:
            async with client.lock(prefix + "a") as lease:
                assert await other.try_lock(prefix + "a") is None
                await lease.set_metadata({"done": "40%"})
                assert (await other.inspect(prefix + "a"))["holders"][0]["metadata"] == {"done": "40%"}
                waiter = asyncio.create_task(other.lock(prefix + "a").acquire())
                await asyncio.sleep(0.2)
                waiter.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiter
            async with other.lock(prefix + "a", wait=30) as second:
                assert second.token > lease.token
    run(test)


@pytest.mark.parametrize("ttl", [9.0, 3600.0])
def test_loss_ends_the_block(service: Member, ttl: float) -> None:
    """A renewal or, long before the next one, the stream of the session reports a loss."""
    async def test() -> None:
        async with leased.aio.Client(service.url, ttl=ttl) as client:
            with pytest.raises(leased.LeaseLost):
                async with client.lock("aio/lost") as lease:
                    service.call("break", {"resource": lease.resource, "token": lease.token})
                    await asyncio.wait_for(lease.lost.wait(), 60)
    run(test)


def test_election(service: Member) -> None:
    async def test() -> None:
        async with leased.aio.Client(service.url) as client:
            turns = 0
            async for lease in client.elect("aio/leader"):
                turns += 1
                assert lease.token > 0
                if turns == 2:
                    break
            async with contextlib.aclosing(client.elect("aio/leads")) as leading:
                async for lease in leading:
                    break
            async with client.lock("aio/leads", wait=0):
                pass
    run(test)


def test_cancellation_stays_that_of_the_caller(service: Member) -> None:
    """httpx cancels the task that connects. That is not the task of the caller, whose timeouts work."""
    async def test() -> None:
        async with leased.aio.Client(service.url.replace("127.0.0.1", "localhost")) as client:
            async with client.lock("aio/timeout"):
                task = asyncio.current_task()
                assert task is not None and task.cancelling() == 0
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await asyncio.sleep(60)
            held = await client.lock("aio/timeout").acquire()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.lock("aio/timeout").acquire()
            await held.release()
    run(test)


@pytest.mark.parametrize("cancelled", [True, False])
def test_only_the_caller_cancels_a_call(service: Member, cancelled: bool) -> None:
    """A request that is cancelled by anybody else is repeated, and one that ignores its end is left nevertheless."""
    async def test() -> None:
        async with leased.aio.Client(service.url) as client:
            exchange, sent = client._exchange, asyncio.Event()

            async def stray(endpoint: Any, call: Any) -> Mapping[str, Any]:
                if call.method != "acquire" or sent.is_set():
                    return await exchange(endpoint, call)
                sent.set()
                if not cancelled:
                    raise asyncio.CancelledError
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
                return await exchange(endpoint, call)

            client._exchange = stray  # type: ignore[assignment]
            work = asyncio.create_task(client.lock("aio/stray").acquire())
            await sent.wait()
            if cancelled:
                work.cancel()
                await asyncio.wait([work])
                assert work.cancelled()
                work = asyncio.create_task(client.lock("aio/stray", wait=60).acquire())
            await (await work).release()
    run(test)


def test_block_that_ends_in_another_task(service: Member) -> None:
    async def test() -> None:
        async with leased.aio.Client(service.url) as client:
            lock = client.lock("aio/elsewhere")
            await asyncio.create_task(lock.__aenter__())
            await lock.__aexit__(None, None, None)
            async with client.lock("aio/elsewhere", wait=0):
                pass
    run(test)


def test_decorators(service: Member) -> None:
    async def test() -> None:
        async with leased.aio.Client(service.url) as client:
            @client.lock("aio/job")
            async def work(n: int) -> int:
                assert await client.try_lock("aio/job") is None
                return n + 1

            @client.locked("aio/job", ttl=9.0)
            async def once() -> str:
                return "ran"

            assert await work(1) == 2
            assert await asyncio.create_task(once()) == "ran"
            async with client.lock("aio/job"):
                assert await once() is None
            decorators: list[Any] = [client.lock("aio/job"), client.locked("aio/job")]
            for decorator in decorators:
                with pytest.raises(TypeError, match="async def"):
                    decorator(lambda: asyncio.sleep(0))
    run(test)


def test_client_of_another_loop_or_closed(service: Member) -> None:
    client = leased.aio.Client(service.url)
    lease = asyncio.run(client.lock("aio/loop", ttl=5.0).acquire())

    async def again() -> None:
        for call in (client.lock("aio/loop").acquire, lease.release, client.close):
            with pytest.raises(leased.Invalid, match="another event loop"):
                await call()

    async def closed() -> None:
        async with leased.aio.Client(service.url) as other:
            await other.inspect("aio/loop")
        with pytest.raises(leased.Invalid, match="closed"):
            await other.inspect("aio/loop")
    asyncio.run(again())
    asyncio.run(closed())


def test_proxies_are_not_for_members(service: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the synchronous client."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    async def test() -> None:
        async with leased.aio.Client(service.url) as client, client.lock("aio/proxy", wait=0):
            pass
    run(test)
