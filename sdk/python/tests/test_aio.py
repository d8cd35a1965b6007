"""The client for asyncio against a real service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

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
    run(test)
