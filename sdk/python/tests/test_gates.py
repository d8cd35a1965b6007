"""Gates in Redis, in files and over HTTP, shared with writers in Go."""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import os
import pathlib
import subprocess
import threading
import urllib.error
import urllib.request
import wsgiref.handlers
import wsgiref.simple_server
import wsgiref.util
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import redis
import redis.asyncio

import leased
from conftest import ROOT, eventually, free_port
from leased import filegate, httpgate, redisgate
from leased._clock import Instant
from leased._core import Grant, KeepAlive
from leased.fencing import Fenced, parse_token


def lease(name: str, token: int) -> Fenced:
    """Return a lease as a fence sees it."""
    return Fenced(Grant((name,), token, "correctness", 0, KeepAlive({}, 10.0, Instant.now()), {}))


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., bool]:
    """A writer in Go, which reports whether its token was admitted: GATE_WRITER, or built from this repository."""
    path = os.environ.get("GATE_WRITER")
    if not path:
        path = str(tmp_path_factory.mktemp("bin") / "gatewriter")
        subprocess.run(["go", "build", "-o", path, "./sdk/conformance/gatewriter"], cwd=ROOT, check=True)

    def write(kind: str, place: object, resource: str, token: int) -> bool:
        done = subprocess.run([str(path), kind, str(place), resource, str(token)], capture_output=True, text=True)
        assert done.returncode in (0, 3), done.stderr
        return done.returncode == 0
    return write


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Redis server."""
    port = free_port()
    process = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                                "--dir", str(tmp_path_factory.mktemp("redis"))], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as client:
            def ready() -> bool:
                try:
                    return bool(client.ping())
                except redis.ConnectionError:
                    return False
            eventually("Redis is ready", ready)
        yield port
    finally:
        process.terminate()
        process.wait()


def guard_each_other(ours: Callable[[int], None], theirs: Callable[[int], bool]) -> None:
    """A writer in Python and one in Go refuse the older tokens of each other."""
    ours(1)
    ours(1)  # another write of the holder
    assert theirs(2)
    with pytest.raises(leased.StaleToken) as stale:
        ours(1)
    assert stale.value.details["mark"] == 2
    ours(3)
    assert not theirs(2)
    assert theirs(3)
    with pytest.raises(leased.StaleToken, match="jumps too far"):
        ours(2**41)


@pytest.mark.parametrize("decode", [True, False])
def test_redis(server: int, writer: Callable[..., bool], decode: bool) -> None:
    name = f"orders/{{%}}/{decode}"
    with redis.Redis(port=server, decode_responses=decode) as client:
        gate = redisgate.Gate(client)
        target = redisgate.key(name, ":text")
        client.script_flush()
        guard_each_other(lambda token: gate.write(lease(name, token), ("SET", target, token)),
                         lambda token: writer("redis", f"127.0.0.1:{server}", name, token))
        holder = lease(name, 4)
        gate.enter(holder)
        assert int(client.get(redisgate.mark_key(name)) or 0) == 4
        assert gate.run(holder, "return redis.call('INCRBY', KEYS[1], ARGV[1])", [target], [2]) == 5
        gate.write(holder, ("SET", target.encode(), 5))
        if not decode:
            assert gate.run(holder, "return string.char(0, 255)") == b"\0\xff", "a result is not text"
        mark = redisgate.mark_key(name)
        for bad in [("GET", target), ("DEL", target, "x"), ("SET", "elsewhere", 1), ("SET", mark, 9),
                    ("SET", mark.encode(), 9)]:
            with pytest.raises(leased.Invalid):
                gate.write(holder, bad)
        with pytest.raises(leased.LeasedError, match="nothing was written"):
            gate.write(lease(name, 5), ("RPUSH", target, 1))
        assert int(client.get(redisgate.mark_key(name)) or 0) == 4
        with pytest.raises(leased.Uncertain):
            gate.write(holder, ("SET", target, 1), ("RPUSH", target, 1))


def test_interrupted_write(server: int) -> None:
    """The interrupt of a caller passes unchanged, and its connection is not used again."""
    def interrupt(*words: Any) -> None:
        raise KeyboardInterrupt

    with redis.Redis(port=server) as client:
        connection = client.connection_pool.get_connection("PING")
        connection.read_response = interrupt
        client.connection_pool.release(connection)
        with pytest.raises(KeyboardInterrupt) as interrupted:
            redisgate.Gate(client).enter(lease("interrupted", 1))
        assert interrupted.value.__cause__ is None
        with pytest.raises(leased.Invalid, match="pass a redis.Redis"):
            redisgate.Gate(client.pipeline())


def test_redis_asyncio(server: int, writer: Callable[..., bool]) -> None:
    async def test() -> None:
        client = redis.asyncio.Redis(port=server)
        gate = redisgate.AsyncGate(client)
        await gate.write(lease("async", 2), ("SET", redisgate.key("async"), 2))
        assert not await asyncio.to_thread(writer, "redis", f"127.0.0.1:{server}", "async", 1)
        assert await asyncio.to_thread(writer, "redis", f"127.0.0.1:{server}", "async", 3)
        with pytest.raises(leased.StaleToken):
            await gate.enter(lease("async", 2))
        assert await gate.run(lease("async", 3), "return redis.call('GET', KEYS[1])", [redisgate.key("async")]) == b"2"
        await client.close()
    asyncio.run(test())


def test_files(tmp_path: pathlib.Path, writer: Callable[..., bool]) -> None:
    gate = filegate.Gate(tmp_path)
    for name in ["reports/May", "x" * 300, ".hidden"]:
        guard_each_other(lambda token: gate.write(lease(name, token), str(token).encode()),
                         lambda token: writer("file", tmp_path, name, token))
        assert gate.path(name).read_text() == "3", "both write the same file"
        gate.enter(lease(name, 4))
        assert gate.mark(name) == 4 and gate.path(name).read_text() == "3"
    gate._inner(".hidden", ".mark").write_text("7\nanother\n")
    with pytest.raises(leased.LeasedError, match="damaged"):
        gate.enter(lease(".hidden", 8))


@pytest.mark.parametrize("name", ["a\rb", "a\r\nb", "\u00fc"])
def test_mark_of_any_name(tmp_path: pathlib.Path, name: str) -> None:
    gate = filegate.Gate(tmp_path)
    gate.enter(lease(name, 1))
    assert gate.mark(name) == 1


def test_refused_content_is_removed(tmp_path: pathlib.Path) -> None:
    """The content of a write that is refused takes up no space."""
    gate = filegate.Gate(tmp_path)
    gate.write(lease("report", 2), b"2")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(leased.StaleToken):
        gate.write(lease("report", 1), b"1")
    assert sorted(tmp_path.rglob("*")) == before


def test_file_is_free_after_a_fork(tmp_path: pathlib.Path) -> None:
    """A process that was forked during a write, as by multiprocessing, does not keep the lock when the write ends."""
    gate = filegate.Gate(tmp_path)
    until, end = os.pipe()
    with gate._lock("report"):
        child = os.fork()
        if child == 0:
            os.close(end)
            os.read(until, 1)
            os._exit(0)
    try:
        with open(gate._inner("report", ".lock")) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(end)
        os.close(until)
        os.waitpid(child, 0)


def test_postgres(database: str, writer: Callable[..., bool]) -> None:
    def ours(token: int) -> None:
        with psycopg.connect(database) as connection, connection.transaction():
            lease("shared", token).fence(connection)

    ours(1)
    assert writer("postgres", database, "shared", 2)
    with pytest.raises(leased.StaleToken):
        ours(1)
    ours(3)
    assert not writer("postgres", database, "shared", 2)
    with psycopg.connect(database, autocommit=True) as connection:
        with pytest.raises(leased.Invalid, match="autocommit"):
            lease("shared", 3).fence(connection)
        with connection.transaction():
            lease("shared", 3).fence(connection)


def test_set_fences_all_its_locks(database: str) -> None:
    both = Fenced(Grant(("set/a", "set/b"), 5, "correctness", 0, KeepAlive({}, 10.0, Instant.now()), {}))
    with psycopg.connect(database) as connection, connection.transaction():
        both.fence(connection)
    for name in both.resources:
        with pytest.raises(leased.StaleToken), psycopg.connect(database) as connection:
            lease(name, 4).fence(connection)
    with pytest.raises(leased.Invalid, match="set"):
        both.guard()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """A WSGI application."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"written"]


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    """A handler without a log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log."""


def test_wsgi(tmp_path: pathlib.Path, writer: Callable[..., bool]) -> None:
    marks = filegate.Gate(tmp_path)
    gate = httpgate.WSGIGate(application, lambda method, path: path.strip("/") or None, marks)
    with wsgiref.simple_server.make_server("127.0.0.1", 0, gate, handler_class=Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/orders"

        def call(method: str, token: str | None) -> tuple[int, Any]:
            request = urllib.request.Request(url, b"x" if method == "POST" else None, method=method,
                                             headers={} if token is None else {httpgate.HEADER: token})
            try:
                with urllib.request.urlopen(request) as response:
                    return response.status, response.read()
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        assert call("POST", None)[0] == 200, "not fenced yet"
        assert writer("http", url, "orders", 2), "the client of the Go gate"
        assert not writer("http", url, "orders", 1), "it reads the problem"
        assert call("POST", "1")[1]["type"] == "urn:leased:problem:stale-token"
        assert call("POST", None)[1]["type"] == "urn:leased:problem:no-token"
        assert call("POST", "01")[0] == 400
        assert call("POST", "resource")[1]["type"] == "urn:leased:problem:invalid-token"
        long = url + "x" * 600
        with pytest.raises(urllib.error.HTTPError) as bad:
            urllib.request.urlopen(urllib.request.Request(long, b"x", {httpgate.HEADER: "1"}))
        assert json.load(bad.value)["type"] == "urn:leased:problem:invalid-resource"
        assert call("GET", None)[0] == 200
        assert call("GET", "3")[0] == 200, "the holder enters"
        assert call("POST", "2")[1]["mark"] == 3
        assert marks.mark("orders") == 3
        server.shutdown()


async def empty() -> dict[str, Any]:
    """Return the body of a request."""
    return {"type": "http.request"}


def test_application_that_refuses_after_its_answer_has_started() -> None:
    """A server replaces the answer of a WSGI application if it can. That of an ASGI application stays."""
    def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        application(environ, start_response)
        raise leased.StaleToken("stale token")

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise leased.StaleToken("stale token")

    environ: dict[str, Any] = {"PATH_INFO": "/a", "HTTP_FENCING_TOKEN": "1"}
    wsgiref.util.setup_testing_defaults(environ)
    environ["REQUEST_METHOD"] = "PUT"
    output = io.BytesIO()
    handler = wsgiref.handlers.SimpleHandler(io.BytesIO(), output, io.StringIO(), environ)
    handler.run(httpgate.WSGIGate(wsgi, lambda method, path: path))
    assert output.getvalue().startswith(b"HTTP/1.0 412")

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
    scope = {"type": "http", "method": "PUT", "path": "/a", "headers": [(b"fencing-token", b"1")]}
    with pytest.raises(leased.StaleToken):
        asyncio.run(httpgate.ASGIGate(asgi, lambda method, path: path)(scope, empty, send))
    assert [message["type"] for message in sent] == ["http.response.start"]


def test_invalid_call_of_an_application_is_no_refusal() -> None:
    """The client has sent a valid request."""
    def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        raise leased.Invalid("of the application")

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        raise leased.Invalid("of the application")

    async def send(message: Any) -> None:
        raise AssertionError("no answer")

    for method in ("GET", "PUT"):
        environ = {"REQUEST_METHOD": method, "PATH_INFO": "/a", "HTTP_FENCING_TOKEN": "1"}
        with pytest.raises(leased.Invalid):
            httpgate.WSGIGate(wsgi, lambda method, path: path)(environ, lambda *_: None)
        scope = {"type": "http", "method": method, "path": "/a", "headers": [(b"fencing-token", b"1")]}
        with pytest.raises(leased.Invalid):
            asyncio.run(httpgate.ASGIGate(asgi, lambda method, path: path)(scope, empty, send))


def test_asgi() -> None:
    running = most = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    gate = httpgate.ASGIGate(app, lambda method, path: path)

    async def call(method: str, *tokens: str) -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)
        headers = [(b"fencing-token", token.encode()) for token in tokens]
        scope = {"type": "http", "method": method, "path": "/a", "query_string": b"", "headers": headers}
        await gate(scope, empty, send)
        return int(sent[0]["status"])

    async def test() -> None:
        assert await asyncio.gather(*(call("PUT", "2") for _ in range(5))) == [200] * 5
        assert most == 1, "writes to one resource run one at a time"
        assert await call("PUT", "1") == 412
        assert await call("PUT") == 412
        assert await call("GET") == 200
        assert await call("GET", "3") == 200
        assert await call("PUT", "2") == 412
        assert await call("PUT", "3", "4") == 400
    asyncio.run(test())


def test_client_that_stops_in_the_middle() -> None:
    """A former holder that is paused while it sends a body does not block the next one."""
    class Body(io.BytesIO):
        """A body that the client sends in parts, and not to its end before the other one is served."""

        def read(self, size: int | None = -1) -> bytes:
            """Return a part of the body."""
            if self.tell():
                served.wait(60)
            return super().read(2)

    served = threading.Event()
    written: list[bytes] = []

    def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        written.append(environ["wsgi.input"].read(5))
        return application(environ, start_response)

    wsgi_gate = httpgate.WSGIGate(wsgi, lambda method, path: path)

    def put(token: int, body: io.BytesIO) -> None:
        environ = {"REQUEST_METHOD": "PUT", "PATH_INFO": "/a", "HTTP_FENCING_TOKEN": str(token),
                   "CONTENT_LENGTH": "5", "wsgi.input": body}
        wsgi_gate(environ, lambda *_: None)

    stops = Body(b"later")
    paused = threading.Thread(target=put, args=(2, stops))
    paused.start()
    eventually("the beginning of the body", lambda: stops.tell() > 0)
    put(2, io.BytesIO(b"first"))
    assert paused.is_alive()
    served.set()
    paused.join()
    assert written == [b"first", b"later"]

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        written.append(body)

    async def test() -> None:
        gate, done, asked = httpgate.ASGIGate(asgi, lambda method, path: path), asyncio.Event(), asyncio.Event()
        long = b"x" * (1 << 20)
        parts = [{"type": "http.request", "body": part, "more_body": more}
                 for part, more in ((b"er", False), (b"lat", True), (b"y", False), (long, True), (long, True))]

        async def slow() -> Any:
            if len(parts) == 1:
                asked.set()
                await done.wait()
            return parts.pop()

        async def put(receive: Any) -> None:
            scope = {"type": "http", "method": "PUT", "path": "/a", "headers": [(b"fencing-token", b"1")]}
            await gate(scope, receive, lambda message: asyncio.sleep(0))

        await put(slow)
        stops = asyncio.create_task(put(slow))
        await asked.wait()
        await put(empty)
        done.set()
        await stops

    asyncio.run(asyncio.wait_for(test(), 120))
    assert written[2:] == [b"x" * (1 << 21) + b"y", b"", b"later"], "also a long one is complete"


@pytest.mark.parametrize("text", ["", "01", "+1", " 1", "1 ", "1e3", "9007199254740992", "٣", "-1", "1" * 30])
def test_other_forms_of_a_token_are_refused(text: str) -> None:
    with pytest.raises(leased.Invalid):
        parse_token(text)
