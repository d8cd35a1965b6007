"""Middleware for WSGI and ASGI that refuses stale writes.

A request carries its token in the header Fencing-Token. The middleware cannot see what the
application writes. If the data lives in a storage that has a gate, use that gate: the
middleware is then only a first filter. Without one it protects data that is written through
this one process only: processes with their own marks do not hold each other back.

Requests for one resource run one at a time. The body of a write is read before that, up to
1 MiB: a longer one, and under WSGI one of unknown length, is read by the application, so that a
client that stops in the middle blocks the resource. Marks in memory are lost on a restart; a
leased.filegate.Gate as marks keeps them. Every method except GET, HEAD, OPTIONS and TRACE is
a write. A read with a token raises the mark before the application runs.

    app = leased.httpgate.WSGIGate(app, lambda method, path: path.strip("/"))
    headers = {leased.httpgate.HEADER: str(lease.token)}  # for the client
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import threading
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, Protocol

from .errors import Invalid, LeasedError, StaleToken
from .fencing import HEADER, MAX_JUMP, admit, parse_token

__all__ = ["ASGIGate", "HEADER", "Marks", "Memory", "ResourceFunc", "WSGIGate"]

ResourceFunc = Callable[[str, str], str | None]
"""Returns the resource that a method on a path writes to, or None for a request that is not gated.

Two requests that can change the same data must return the same name."""

_BUFFER = 1 << 20  # bytes of a body that are read before the request waits for its resource
_READS = {"GET", "HEAD", "OPTIONS", "TRACE"}
_OVERRIDES = {"x-http-method-override", "x-http-method", "x-method-override"}


class Marks(Protocol):
    """The newest token of each resource."""

    def admit(self, resource: str, token: int) -> None:
        """Admit a token and store it, or raise StaleToken."""


class Memory:
    """Marks in memory. After a restart the first token of each resource is admitted, however old it is."""

    def __init__(self, max_jump: int = MAX_JUMP) -> None:
        self._marks: dict[str, int] = {}
        self._lock = threading.Lock()
        self._max_jump = max_jump

    def admit(self, resource: str, token: int) -> None:
        """Admit a token and store it, or raise StaleToken."""
        with self._lock:
            mark = self._marks.get(resource, 0)
            admit(resource, mark, token, self._max_jump)
            if token > mark:
                self._marks[resource] = token


class _Queue:
    """Locks by name, which exist while they are used."""

    def __init__(self, new: Callable[[], Any]) -> None:
        self._new = new
        self._locks: dict[str, tuple[Any, int]] = {}
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def use(self, name: str) -> Iterator[Any]:
        with self._guard:
            lock, users = self._locks.get(name) or (self._new(), 0)
            self._locks[name] = lock, users + 1
        try:
            yield lock
        finally:
            with self._guard:
                lock, users = self._locks.pop(name)
                if users > 1:
                    self._locks[name] = lock, users - 1


class _Request:
    """What the gate needs of a request."""

    def __init__(self, gate: _Gate, method: str, path: str, query: str, headers: Iterable[tuple[str, str]]) -> None:
        headers = [(name.lower().replace("_", "-"), value) for name, value in headers]
        values = [value for name, value in headers if name == HEADER.lower()]
        if len(values) > 1 or values and "," in values[0]:
            raise Invalid("the request has several fencing tokens", "send one")
        self.token = parse_token(values[0]) if values else 0
        overrides = any(name in _OVERRIDES and value for name, value in headers)
        hidden = any(name == "_method" for name, _ in urllib.parse.parse_qsl(query, keep_blank_values=True))
        self.read = method in _READS and not overrides and not hidden
        ungated = self.read and not self.token
        self.resource = None if ungated else gate._resource(method, path)
        if self.resource is not None and not 0 < len(self.resource.encode()) <= 512:
            error = Invalid(f"{self.resource[:80]!r} is not a valid resource", "a name has 1 to 512 bytes")
            error.code = "invalid-resource"
            raise error


class _Gate:
    def __init__(self, app: Any, resource: ResourceFunc, marks: Marks | None = None) -> None:
        self._app = app
        self._resource = resource
        self._marks = marks if marks is not None else Memory()


def _problem(error: LeasedError) -> tuple[int, bytes]:
    """Return the status and the body of a refusal, as defined by RFC 9457 and sent by the Go gate."""
    stale = isinstance(error, StaleToken)
    kind, title = "invalid-token", "Invalid fencing token"
    if error.code == "invalid-resource":
        kind, title = "invalid-resource", "Invalid resource"
    if stale:
        kind, title = (("token-jump", "Fencing token jumps too far") if error.details.get("jump") else
                       ("stale-token", "Stale fencing token") if error.details.get("token") else
                       ("no-token", "No fencing token"))
    details = {k: v for k, v in error.details.items() if k != "jump"}
    if kind == "token-jump":
        details["maxJump"] = MAX_JUMP
    status = 412 if stale else 400
    body = {"type": "urn:leased:problem:" + kind, "title": title, "status": status, "detail": str(error), **details}
    return status, json.dumps(body).encode()


_PROBLEM = [("Content-Type", "application/problem+json"), ("Cache-Control", "no-store")]
_REASONS = {412: "412 Precondition Failed", 400: "400 Bad Request"}


class WSGIGate(_Gate):
    """Gates a WSGI application. Applications that write the same data must share one gate."""

    def __init__(self, app: Any, resource: ResourceFunc, marks: Marks | None = None) -> None:
        super().__init__(app, resource, marks)
        self._queue = _Queue(threading.Lock)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve a request. The answer is complete before the resource is free again."""
        headers = [(name[5:], str(value)) for name, value in environ.items() if name.startswith("HTTP_")]
        path = environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace")
        try:
            request = _Request(self, environ["REQUEST_METHOD"], path, environ.get("QUERY_STRING", ""), headers)
        except Invalid as error:  # an Invalid of the application is no mistake of the request
            return _refuse(error, start_response)
        try:
            if request.resource is None:
                return self._app(environ, start_response)  # type: ignore[no-any-return]
            if not request.read:
                _buffer(environ)
            with self._queue.use(request.resource) as lock, lock:
                self._marks.admit(request.resource, request.token)
                if not request.read:
                    answer = self._app(environ, start_response)
                    try:
                        return list(answer)
                    finally:
                        getattr(answer, "close", lambda: None)()
            return self._app(environ, start_response)  # type: ignore[no-any-return]
        except StaleToken as error:  # also of the application
            return _refuse(error, start_response)


def _buffer(environ: dict[str, Any]) -> None:
    """Read the body, unless it is long: a client that stops in the middle must not block the resource."""
    length = environ.get("CONTENT_LENGTH") or ""
    rest = int(length) if length.isdecimal() else 0
    if not 0 < rest <= _BUFFER:
        return
    body, source = io.BytesIO(), environ["wsgi.input"]
    while rest > 0 and (part := source.read(rest)):
        rest -= body.write(part)
    body.seek(0)
    environ["wsgi.input"] = body


def _refuse(error: LeasedError, start_response: Callable[..., Any]) -> Iterable[bytes]:
    status, body = _problem(error)
    headers = [*_PROBLEM, ("Content-Length", str(len(body)))]
    start_response(_REASONS[status], headers, sys.exc_info())  # the application may have called it
    return [body]


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class ASGIGate(_Gate):
    """Gates an ASGI application. Applications that write the same data must share one gate."""

    def __init__(self, app: Any, resource: ResourceFunc, marks: Marks | None = None) -> None:
        super().__init__(app, resource, marks)
        self._queue = _Queue(asyncio.Lock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        started = False

        async def watched(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        query = scope.get("query_string", b"").decode("latin-1")
        try:
            request = _Request(self, scope["method"], scope["path"], query, headers)
        except Invalid as error:  # an Invalid of the application is no mistake of the request
            await _arefuse(error, send)
            return
        if request.resource is not None and not request.read:
            receive = await _buffered(receive)
        try:
            async with self._admitted(request):
                if not request.read:
                    await self._app(scope, receive, watched)
                    return
        except StaleToken as error:  # also of the application
            if started:  # an answer cannot be replaced
                raise
            await _arefuse(error, send)
            return
        await self._app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _admitted(self, request: _Request) -> AsyncIterator[None]:
        if request.resource is None:
            yield
            return
        with self._queue.use(request.resource) as lock:
            async with lock:
                await asyncio.to_thread(self._marks.admit, request.resource, request.token)
                yield


async def _buffered(receive: Receive) -> Receive:
    """Read the body, at least its beginning, and return a function that repeats it and goes on."""
    body, last = bytearray(), None
    while last is None and len(body) <= _BUFFER:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):  # or the client is gone
            last = message
    messages = [{"type": "http.request", "more_body": last is None, **(last or {}), "body": bytes(body)}]

    async def again() -> Any:
        return messages.pop() if messages else await receive()
    return again


async def _arefuse(error: LeasedError, send: Send) -> None:
    status, body = _problem(error)
    headers = [(name.lower().encode(), value.encode()) for name, value in _PROBLEM]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
