"""CPython's own tests of threading.Lock, on a lock of the service."""

from __future__ import annotations

import _thread
import itertools
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pytest
from test.lock_tests import LockTests as CPythonLockTests  # of Debian's libpython3-testsuite

import leased
from conftest import Member

names = (f"locktests/{i}" for i in itertools.count())
client: leased.Client


class ThreadingLock:
    """The interface of threading.Lock."""

    def __init__(self) -> None:
        self._name = next(names)
        self._lease: leased.Lease | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, as threading.Lock does."""
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if timeout < 0 and timeout != -1:
            raise ValueError("timeout value must be a non-negative number")
        if timeout > threading.TIMEOUT_MAX:
            raise OverflowError("timeout value is too large")
        wait = 0.0 if not blocking else None if timeout == -1 else timeout
        try:
            self._lease = client.lock(self._name, wait=wait).acquire()
        except leased.Held:
            return False
        return True

    def release(self) -> None:
        """Release the lock, in any thread."""
        if self._lease is None:
            raise RuntimeError("release unlocked lock")
        lease, self._lease = self._lease, None
        lease.release()

    def locked(self) -> bool:
        """Report whether anyone holds the lock."""
        return bool(client.inspect(self._name).get("holders"))

    def _at_fork_reinit(self) -> None:
        if self._lease is not None:
            self.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<{'locked' if self.locked() else 'unlocked'} {type(self).__name__} object at {id(self):#x}>"


def is_own(thread: threading.Thread) -> bool:
    """Report whether a thread is one of the client's."""
    return thread.name.startswith("leased ")


class TestLock(CPythonLockTests):  # type: ignore[misc]
    """All tests of CPython for a lock."""

    locktype: Any = ThreadingLock

    @pytest.fixture(autouse=True, scope="class")
    def service_client(self, service: Member) -> Iterator[None]:
        """A client for all locks. CPython counts the threads of a test; those of the client do not count."""
        global client
        count, enumerate_all = _thread._count, threading.enumerate
        with pytest.MonkeyPatch.context() as patch, leased.Client(service.url, ttl=60.0) as client:
            patch.setattr(_thread, "_count", lambda: count() - sum(map(is_own, enumerate_all())))
            patch.setattr(threading, "enumerate", lambda: [t for t in enumerate_all() if not is_own(t)])
            yield


del CPythonLockTests
