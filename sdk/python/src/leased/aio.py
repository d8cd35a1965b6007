"""The client for asyncio, on httpx. It runs the same core as the synchronous client.

    async with leased.aio.Client("http://127.0.0.1:7420") as client:
        async with client.lock("account/7", wait=30) as lease:
            ...
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import httpx

from ._client import Entered, Names, P, R, T, _clients
from ._core import Answer, Call, Closed, Core, Grant, Pause, Steps, Wanted, resources
from ._transport import LEADER, Endpoint, Endpoints, authorization
from .errors import Held, Invalid, LeasedError
from .fencing import Fenced

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class Lost(asyncio.Event):
    """Set when a lease is lost. It also reads the clock."""

    def __init__(self, grant: Grant) -> None:
        super().__init__()
        self._grant = grant

    def is_set(self) -> bool:
        """Report whether the lease is lost or has passed its deadline."""
        return super().is_set() or self._grant.expired()


class Lease(Fenced):
    """A lock that the caller holds, with its fencing token. See leased.Lease."""

    def __init__(self, client: Client, grant: Grant) -> None:
        super().__init__(grant)
        self._client = client
        self.lost: asyncio.Event = grant.lost
        """Set when the lease is lost or its deadline has passed. Stop writing then."""

    async def set_metadata(self, metadata: Mapping[str, str]) -> None:
        """Replace the metadata that others see when they inspect the lock, such as the progress of a job."""
        await self._client._run(self._client._core.describe(self._grant, metadata))

    async def release(self) -> None:
        """Release the lock. Releasing twice has no effect. A cancelled release continues in the background."""
        await self._client._run(self._client._core.release(self._grant))

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        cause = self._grant.loss()
        with contextlib.suppress(LeasedError):  # it is released in the background
            await self.release()
        if cause is not None and error is None:
            raise cause


class Lock(contextlib.AsyncContextDecorator):
    """A lock to be taken: an asynchronous context manager, and a decorator.

    Tasks may share it; each gets its own lease.
    """

    def __init__(self, client: Client, wanted: Wanted) -> None:
        self._client = client
        self._wanted = wanted
        self._entered: Entered[Lease] = Entered()

    async def acquire(self) -> Lease:
        """Take the lock and return the lease."""
        return await self._client._acquire(self._wanted)

    async def __aenter__(self) -> Lease:
        lease = await self.acquire()
        self._entered.push(asyncio.current_task(), lease)
        return lease

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._entered.pop(asyncio.current_task()).__aexit__(kind, error, trace)

    def __call__(self, job: F) -> F:
        """Return a coroutine function that takes the lock for each call."""
        _check_function(job)
        return super().__call__(job)


def _check_function(job: Any) -> None:
    if not inspect.iscoroutinefunction(job):
        raise TypeError(f"{job!r} is not a coroutine function; define it with async def, or use leased.Client")


class Client:
    """A client of a leased service for asyncio. One task keeps all its leases alive. See leased.Client.

    It belongs to the event loop of its first call. In a forked process it is closed.
    """

    def __init__(self, endpoints: str | Sequence[str] = "http://127.0.0.1:7420", *, secret: str | None = None,
                 ssl_context: ssl.SSLContext | None = None, holder: str | None = None, ttl: float = 10.0) -> None:
        self._endpoints = Endpoints(endpoints)
        self._http = httpx.AsyncClient(headers=authorization(secret, self._endpoints),
                                       limits=httpx.Limits(max_connections=None),
                                       verify=ssl_context or ssl.create_default_context(), trust_env=False)
        self._wake = asyncio.Event()
        self._core = Core(holder, ttl, Lost, self._wake.set)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._users = 0  # of the connections
        self._closing: asyncio.Task[None] | None = None
        _clients.add(self)

    def lock(self, names: Names, *, wait: float | None = None, ttl: float | None = None, shared: bool = False,
             permits: int = 0, mode: str = "", metadata: Mapping[str, str] | None = None) -> Lock:
        """Return a lock, for an async with statement."""
        return Lock(self, Wanted(resources(names), ttl, wait, shared, permits, mode, metadata or {}))

    async def try_lock(self, names: Names, *, ttl: float | None = None, shared: bool = False, permits: int = 0,
                       mode: str = "", metadata: Mapping[str, str] | None = None) -> Lease | None:
        """Return a lease, or None if others hold the lock."""
        try:
            return await self.lock(names, wait=0.0, ttl=ttl, shared=shared, permits=permits, mode=mode,
                                   metadata=metadata).acquire()
        except Held:
            return None

    def locked(self, names: Names, *, ttl: float | None = None, shared: bool = False, permits: int = 0,
               mode: str = "", metadata: Mapping[str, str] | None = None,
               ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | None]]]:
        """Return a decorator for jobs: the function returns None at once if another caller runs it."""
        def decorate(job: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R | None]]:
            _check_function(job)

            @functools.wraps(job)
            async def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
                lease = await self.try_lock(names, ttl=ttl, shared=shared, permits=permits, mode=mode,
                                            metadata=metadata)
                if lease is None:
                    return None
                async with lease:
                    return await job(*args, **kwargs)
            return run
        return decorate

    async def elect(self, name: str, *, ttl: float | None = None) -> AsyncGenerator[Lease, None]:
        """Campaign for leadership repeatedly. Each turn ends with the body of the loop.

        Use contextlib.aclosing to end the last turn at the end of the loop.
        """
        with contextlib.suppress(Closed):
            while True:
                lease = await self.lock(name, ttl=ttl).acquire()
                try:
                    yield lease
                finally:
                    with contextlib.suppress(LeasedError):
                        await lease.release()

    async def inspect(self, name: str) -> Mapping[str, Any]:
        """Return the holders and waiters of a lock, as docs/API.md describes them."""
        lock: Mapping[str, Any] = (await self._run(self._core.repeat(Call("inspect", {"resource": name}))))["lock"]
        return lock

    async def break_lease(self, name: str, token: int) -> None:
        """End the lease of another holder, for operators."""
        await self._run(self._core.repeat(Call("break", {"resource": name, "token": token})))

    async def close(self) -> None:
        """Release all leases and end the task. A lease that is granted meanwhile is released, too.

        A cancelled close continues in the background, and another close waits for it.
        """
        self._check_loop()
        if self._closing is None or self._closing.cancelled():
            self._closing = asyncio.create_task(self._close(), name="leased close")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        async with self._connected():
            ends = self._core.close()
            if self._task is not None:
                self._task.cancel()
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*(self._run(steps) for steps in ends), return_exceptions=True)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    async def _acquire(self, wanted: Wanted) -> Lease:
        self._check_loop()
        if self._task is None or self._task.done() and not self._core.closed:
            self._task = asyncio.create_task(self._keep_alive(), name="leased keep-alive")
        return Lease(self, await self._run(self._core.acquire(wanted)))

    def _check_loop(self) -> None:
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
        if self._loop is not running:
            raise Invalid("the client belongs to another event loop", "create a client in each loop")

    async def _call(self, call: Call) -> Answer:
        self._check_loop()
        cause: Exception | None = None
        for _ in self._endpoints.all:
            endpoint = self._endpoints.get()
            try:
                async with asyncio.timeout(call.limit if call.each is None else None):
                    return await _apart((self._exchange if call.each is None else self._stream)(endpoint, call))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                cause = error
                self._endpoints.fail(endpoint)
                continue
            except (httpx.HTTPError, TimeoutError) as error:
                raise self._endpoints.unanswered(endpoint, call, error) from error
        raise self._endpoints.unreachable(cause)

    async def _exchange(self, endpoint: Endpoint, call: Call) -> Answer:
        response = await self._http.send(self._request(endpoint, call))
        return self._answered(endpoint, call, response, response.content)

    async def _stream(self, endpoint: Endpoint, call: Call) -> Answer:
        assert call.each is not None
        response = await self._http.send(self._request(endpoint, call), stream=True)
        try:
            async for line in response.aiter_lines():
                call.each(self._answered(endpoint, call, response, line.encode()))
        finally:
            await response.aclose()
        return {}

    def _request(self, endpoint: Endpoint, call: Call) -> httpx.Request:
        timeout = httpx.Timeout(call.limit, connect=min(call.limit, 3.0))
        return self._http.build_request("POST", f"{endpoint.url}/v1/{call.method}", json=dict(call.body),
                                        timeout=timeout)

    def _answered(self, endpoint: Endpoint, call: Call, response: httpx.Response, text: bytes) -> Answer:
        return self._endpoints.answered(endpoint, call, response.status_code, text, response.headers.get(LEADER))

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        """Keep the connections open, after a close too: what is granted then must be released."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._core.closed and self._users == 0:
                await self._http.aclose()

    async def _run(self, steps: Steps[T]) -> T:
        """Run a generator of the core."""
        async with self._connected():
            return await self._steps(steps)

    async def _steps(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, Pause):
                        await asyncio.sleep(step.seconds)
                        answer: Mapping[str, Any] = {}
                    else:
                        answer = await self._call(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _keep_alive(self) -> None:
        """Renew leases and end expired ones. It makes no calls itself, so no deadline waits for one."""
        while not self._core.closed:
            todo, watches, pause = self._core.step()
            for steps in todo + watches:
                call = asyncio.create_task(self._run(steps))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()

    def _forget(self) -> None:
        self._core.forget()
        self._core.closed = True


async def _apart(call: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a call of httpx in a task of its own: anyio cancels its task to connect, and does not uncancel it."""
    result: Answer | BaseException
    [result] = await asyncio.gather(call, return_exceptions=True)
    if isinstance(result, asyncio.CancelledError):
        raise httpx.ReadError("the request was cancelled")
    if isinstance(result, BaseException):
        raise result
    return result
