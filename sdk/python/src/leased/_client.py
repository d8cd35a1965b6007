"""The synchronous client."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from ._core import Call, Closed, Core, Grant, Pause, Place, Steps, Wanted, resources
from ._transport import Endpoints, Transport
from .errors import Held, LeasedError
from .fencing import Fenced

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Names = str | Sequence[str]

_clients: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        with contextlib.suppress(Exception):  # the others must forget their leases, too
            client._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Lost(threading.Event):
    """Set when a lease is lost. It also reads the clock: after a pause of the process nothing else may have run."""

    def __init__(self, grant: Grant) -> None:
        super().__init__()
        self._grant = grant

    def is_set(self) -> bool:
        """Report whether the lease is lost or has passed its deadline."""
        return super().is_set() or self._grant.expired()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost, or for some seconds, and report whether it is lost."""
        return super().wait(timeout) or self.is_set()


class Lease(Fenced):
    """A lock that the caller holds, with its fencing token.

    A lease does not protect data by itself: pass its token to a fence with every write. Used
    as a context manager it is released at the end of the block, which raises LeaseLost if
    the lease was lost inside.
    """

    def __init__(self, client: Client, grant: Grant) -> None:
        super().__init__(grant)
        self._client = client
        self.lost: threading.Event = grant.lost
        """Set when the lease is lost or its deadline has passed. Stop writing then."""

    def set_metadata(self, metadata: Mapping[str, str]) -> None:
        """Replace the metadata that others see when they inspect the lock, such as the progress of a job."""
        self._client._run(self._client._core.describe(self._grant, metadata))

    def release(self) -> None:
        """Release the lock. Releasing twice has no effect. If no member serves it, it goes on in the background."""
        self._client._run(self._client._core.release(self._grant))

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        cause = self._grant.loss()
        with contextlib.suppress(LeasedError):  # it is released in the background
            self.release()
        if cause is not None and error is None:
            raise cause


class Entered(Generic[T]):
    """The leases of a lock that were entered, the newest last, each with the thread or the task that did."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._leases: list[tuple[object, T]] = []

    def push(self, owner: object, lease: T) -> None:
        """Add a lease."""
        with self._guard:
            self._leases.append((owner, lease))

    def pop(self, owner: object) -> T:
        """Remove the newest lease of the owner. A block may end elsewhere: then the newest lease of all."""
        with self._guard:
            own = [i for i, (entered, _) in enumerate(self._leases) if entered == owner]
            return self._leases.pop(own[-1] if own else -1)[1]


class Lock(contextlib.ContextDecorator):
    """A lock to be taken: a context manager, and a decorator."""

    def __init__(self, client: Client, wanted: Wanted) -> None:
        self._client = client
        self._wanted = wanted
        self._entered: Entered[Lease] = Entered()

    def acquire(self) -> Lease:
        """Take the lock and return the lease."""
        return self._client._acquire(self._wanted)

    def __enter__(self) -> Lease:
        lease = self.acquire()
        try:
            self._entered.push(threading.get_ident(), lease)
        except BaseException:  # of a signal handler
            self._client._core.abandon(lease._grant)
            raise
        return lease

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._entered.pop(threading.get_ident()).__exit__(kind, error, trace)

    def __call__(self, job: F) -> F:
        """Return a function that takes the lock for each call."""
        _check_function(job)
        return super().__call__(job)


def _check_function(job: Any) -> None:
    """Refuse a function whose call returns before its body has run: the lock would be released by then."""
    if any(kind(job) for kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction,
                                  inspect.isasyncgenfunction)):
        raise TypeError(f"{job!r} would run after the lock is released; take the lock inside the function, or use "
                        "leased.aio for a coroutine function")


class Client:
    """A client of a leased service. One thread keeps all its leases alive.

    endpoints are the URLs of one or more members. holder names this program for people who
    inspect a lock. A client may be shared by threads. A forked child starts without leases:
    they belong to the parent.
    """

    def __init__(self, endpoints: str | Sequence[str] = "http://127.0.0.1:7420", *, secret: str | None = None,
                 ssl_context: ssl.SSLContext | None = None, holder: str | None = None, ttl: float = 10.0) -> None:
        self._transport = Transport(Endpoints(endpoints), secret, ssl_context)
        self._wake = threading.Event()
        self._core = Core(holder, ttl, Lost, lambda: self._wake.set())
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        _clients.add(self)

    def lock(self, names: Names, *, wait: float | None = None, ttl: float | None = None, shared: bool = False,
             permits: int = 0, mode: str = "", metadata: Mapping[str, str] | None = None) -> Lock:
        """Return a lock, for a with statement or as a decorator.

        Several names are a set: all of them under one token, or none. Without wait the caller
        waits until it is granted, even while no member can be reached; after wait seconds it
        gets Held.
        """
        return Lock(self, Wanted(resources(names), ttl, wait, shared, permits, mode, metadata or {}))

    def try_lock(self, names: Names, *, ttl: float | None = None, shared: bool = False, permits: int = 0,
                 mode: str = "", metadata: Mapping[str, str] | None = None) -> Lease | None:
        """Return a lease, or None if others hold the lock."""
        try:
            return self.lock(names, wait=0.0, ttl=ttl, shared=shared, permits=permits, mode=mode,
                             metadata=metadata).acquire()
        except Held:
            return None

    def locked(self, names: Names, *, ttl: float | None = None, shared: bool = False, permits: int = 0,
               mode: str = "", metadata: Mapping[str, str] | None = None,
               ) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
        """Return a decorator for jobs: the function returns None at once if another caller runs it."""
        def decorate(job: Callable[P, R]) -> Callable[P, R | None]:
            _check_function(job)

            @functools.wraps(job)
            def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
                lease = self.try_lock(names, ttl=ttl, shared=shared, permits=permits, mode=mode, metadata=metadata)
                if lease is None:
                    return None
                with lease:
                    return job(*args, **kwargs)
            return run
        return decorate

    def elect(self, name: str, *, ttl: float | None = None) -> Generator[Lease, None, None]:
        """Campaign for leadership repeatedly. Each turn ends with the body of the loop:

            for lease in client.elect("leader"):
                while not lease.lost.wait(1):
                    work(lease)
        """
        with contextlib.suppress(Closed):
            while True:
                lease = self.lock(name, ttl=ttl).acquire()
                try:
                    yield lease
                finally:
                    with contextlib.suppress(LeasedError):
                        lease.release()

    def inspect(self, name: str) -> Mapping[str, Any]:
        """Return the holders and waiters of a lock, as docs/API.md describes them."""
        lock: Mapping[str, Any] = self._run(self._core.repeat(Call("inspect", {"resource": name})))["lock"]
        return lock

    def break_lease(self, name: str, token: int) -> None:
        """End the lease of another holder, for operators."""
        self._run(self._core.repeat(Call("break", {"resource": name, "token": token})))

    def close(self) -> None:
        """Release all leases and end the thread. What is granted meanwhile is released, too."""
        ends: list[threading.Thread] = []
        for steps in self._core.close():
            try:
                ends.append(self._spawn(steps))
            except RuntimeError:  # the interpreter exits, or the system has no more threads
                self._run(steps)
        self._wake.set()
        thread = self._thread
        for ending in [*ends, *([thread] if thread is not None and thread is not threading.current_thread() else [])]:
            ending.join()
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _acquire(self, wanted: Wanted) -> Lease:
        with self._starting:
            if self._thread is None and not self._core.closed:
                thread = threading.Thread(target=self._keep_alive, name="leased keep-alive", daemon=True)
                thread.start()  # fails if the system has no more threads
                self._thread = thread
        place = Place()
        try:
            return Lease(self, self._run(self._core.acquire(wanted, place)))
        except BaseException:  # also of a signal handler, after the grant
            if place.grant is not None:
                self._core.abandon(place.grant)
            raise

    def _run(self, steps: Steps[T]) -> T:
        """Run a generator of the core."""
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, Pause):
                        time.sleep(step.seconds)
                        answer: Mapping[str, Any] = {}
                    else:
                        answer = self._transport.call(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _spawn(self, steps: Steps[None]) -> threading.Thread:
        """Run a generator of the core in the background."""
        thread = threading.Thread(target=self._run, args=(steps,), name="leased call", daemon=True)
        thread.start()
        return thread

    def _keep_alive(self) -> None:
        """Renew leases and end expired ones. It makes no calls itself, so no deadline waits for one."""
        while not self._core.closed:
            todo, watches, pause = self._core.step()
            for steps in todo:
                try:
                    self._spawn(steps)
                except RuntimeError:  # the system has no more threads
                    self._run(steps)
            for steps in watches:
                with contextlib.suppress(RuntimeError):  # without a stream, renewals tell of losses
                    self._spawn(steps)
            self._wake.wait(pause)
            self._wake.clear()

    def _forget(self) -> None:
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._thread = None
        self._transport.forget()
        for lost in [grant.lost for kept in self._core.kept for grant in kept.grants]:
            lost._at_fork_reinit()  # a thread of the parent may have been inside
        self._core.forget()
