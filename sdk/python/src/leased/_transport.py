"""HTTP connections to the members of a service, with the standard library."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import select
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Sequence

from ._clock import Instant
from ._core import Answer, Call
from .errors import Invalid, LeasedError, Unavailable, Uncertain, from_answer

CONNECT_LIMIT = 3.0  # seconds
AVOID = 30.0  # seconds for which calls do not follow to a leader that has failed
LEADER = "Leased-Leader"  # the header of an answer with the address of the leader


class Endpoint:
    """The address of a member."""

    def __init__(self, url: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url if "//" in url else "http://" + url)
            port = parts.port or 7420
        except ValueError:  # such as a port that is no number
            parts, port = urllib.parse.urlsplit(""), 0
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise Invalid(f"endpoint {url.rpartition('@')[2]!r}: use a URL such as http://127.0.0.1:7420")
        self.tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = port
        self.address = parts.netloc if parts.port else f"{parts.netloc.rstrip(':')}:{port}"
        self.path = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{self.address}{self.path}"

    def exposes(self) -> bool:
        """Report whether others on the network can read what is sent to the member."""
        try:
            return not (self.tls or ipaddress.ip_address(self.host).is_loopback)
        except ValueError:
            return self.host != "localhost"


class Endpoints:
    """The members of a service. Calls leave a member that fails for the next one, and a follower for the leader."""

    def __init__(self, urls: str | Sequence[str]) -> None:
        self.all = [Endpoint(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self.all:
            raise Invalid("a client needs the address of at least one member")
        self.current = 0
        self.failed: dict[Endpoint, Instant] = {}  # when a member has last failed

    def get(self) -> Endpoint:
        """Return the member to call."""
        return self.all[self.current % len(self.all)]

    def leave(self, endpoint: Endpoint) -> None:
        """Do not call this member next. If many calls fail together, only one counts."""
        current = self.current
        if self.all[current % len(self.all)] is endpoint:
            self.current = current + 1

    def fail(self, endpoint: Endpoint) -> None:
        """Leave a member that cannot be reached, or does not answer as a member does, and do not follow to it soon."""
        self.failed[endpoint] = Instant.now()
        self.leave(endpoint)

    def unanswered(self, endpoint: Endpoint, call: Call, cause: Exception) -> Uncertain:
        """Leave a member that does not answer a call, and return the exception."""
        (self.leave if call.waits else self.fail)(endpoint)
        return Uncertain(f"{endpoint.url} did not answer: {cause or type(cause).__name__}")

    def follow(self, leader: str | None) -> None:
        """Call the leader next, unless it has failed: a member that forwards to it may reach it nevertheless."""
        for i, member in enumerate(self.all):
            failed = self.failed.get(member)
            if member.address == leader and (failed is None or failed.elapsed() >= AVOID):
                self.current = i

    def answered(self, endpoint: Endpoint, call: Call, status: int, text: bytes, leader: str | None) -> Answer:
        """Return an answer, or raise the exception of a failed call."""
        answer = decode(status, text)
        if isinstance(answer, Unavailable):  # such as a member that cannot reach the leader
            self.leave(endpoint)
        elif isinstance(answer, LeasedError) and (isinstance(answer, Uncertain) or "code" not in answer.details):
            self.fail(endpoint)
        if isinstance(answer, LeasedError):
            raise answer
        if "sessionId" in call.body and leader != endpoint.address:  # the member has forwarded it
            self.follow(leader)
        return answer

    def unreachable(self, cause: BaseException | None) -> LeasedError:
        """Return the exception for a call that no member has received."""
        tried = ", ".join(e.url for e in self.all)
        link = cause
        while link is not None:
            if isinstance(link, ssl.SSLCertVerificationError):  # trying again does not help
                return Invalid(f"the certificate of {tried} is not trusted: {link}",
                               "pass an ssl_context that trusts the authority of the service")
            link = link.__cause__ or link.__context__
        error = Unavailable(f"no member of the lock service can be reached at {tried}: {cause}")
        error.code = "unreachable"
        return error


class Transport:
    """Calls the service at one of its members."""

    def __init__(self, endpoints: Endpoints, secret: str | None, context: ssl.SSLContext | None) -> None:
        self.endpoints = endpoints
        self.headers = {"Content-Type": "application/json", "User-Agent": "leased-python",
                        **authorization(secret, endpoints)}
        self.context = context
        self.lock = threading.Lock()
        self.idle: list[tuple[Endpoint, http.client.HTTPConnection]] = []

    def call(self, call: Call) -> Answer:
        """Call the service once for each member that refuses connections, at most once otherwise."""
        cause: Exception | None = None
        for _ in self.endpoints.all:
            endpoint = self.endpoints.get()
            began = Instant.now()
            try:
                connection = self._connect(endpoint, call.limit)
            except OSError as error:
                _check_ours(error, began, min(call.limit, CONNECT_LIMIT))
                cause = error
                self.endpoints.fail(endpoint)
                continue
            return (self._exchange if call.each is None else self._stream)(endpoint, connection, call)
        raise self.endpoints.unreachable(cause)

    def _exchange(self, endpoint: Endpoint, connection: http.client.HTTPConnection, call: Call) -> Answer:
        with self._sending(endpoint, connection, call):
            response = self._send(endpoint, connection, call)
            text = response.read()
        if response.will_close:
            connection.close()
        else:
            with self.lock:
                self.idle.append((endpoint, connection))
        return self.endpoints.answered(endpoint, call, response.status, text, response.getheader(LEADER))

    def _stream(self, endpoint: Endpoint, connection: http.client.HTTPConnection, call: Call) -> Answer:
        assert call.each is not None
        with self._sending(endpoint, connection, call), contextlib.closing(connection):
            response = self._send(endpoint, connection, call)
            for line in response:
                leader = response.getheader(LEADER)
                call.each(self.endpoints.answered(endpoint, call, response.status, line, leader))
        return {}

    def _send(self, endpoint: Endpoint, connection: http.client.HTTPConnection, call: Call) -> http.client.HTTPResponse:
        connection.request("POST", f"{endpoint.path}/v1/{call.method}", json.dumps(call.body), self.headers)
        return connection.getresponse()

    @contextlib.contextmanager
    def _sending(self, endpoint: Endpoint, connection: http.client.HTTPConnection, call: Call) -> Iterator[None]:
        """Close a connection that fails."""
        began = Instant.now()
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            _check_ours(error, began, call.limit)
            raise self.endpoints.unanswered(endpoint, call, error) from error
        except BaseException:
            connection.close()
            raise

    def _connect(self, endpoint: Endpoint, limit: float) -> http.client.HTTPConnection:
        with self.lock:
            while self.idle and not _alive(self.idle[0][1]):  # the member closes connections without calls
                self.idle.pop(0)[1].close()
            for i in reversed(range(len(self.idle))):  # so that the first ones stay without calls
                known, connection = self.idle[i]
                if known is endpoint:
                    del self.idle[i]
                    if _alive(connection):
                        connection.sock.settimeout(limit)
                        return connection
                    connection.close()
                    break
        fresh: http.client.HTTPConnection
        if endpoint.tls:
            fresh = http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=min(limit, CONNECT_LIMIT),
                                                context=self.context)
        else:
            fresh = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=min(limit, CONNECT_LIMIT))
        fresh.connect()
        fresh.sock.settimeout(limit)
        return fresh

    def close(self) -> None:
        """Close idle connections."""
        with self.lock:
            idle, self.idle = self.idle, []
        for _, connection in idle:
            connection.close()

    def forget(self) -> None:
        """Leave the connections to the parent process."""
        self.lock = threading.Lock()
        for _, connection in self.idle:
            if connection.sock is not None:
                socket.close(connection.sock.detach())  # without the end of TLS, which is the parent's
        self.idle = []


def _check_ours(error: Exception, began: Instant, limit: float) -> None:
    """Raise a TimeoutError that comes before the limit: it is that of a signal handler, for the caller."""
    if isinstance(error, TimeoutError) and error.errno is None and began.elapsed() < limit:
        raise error


def authorization(secret: str | None, endpoints: Endpoints) -> dict[str, str]:
    """Return the header for a secret. The newline at the end of a file is no part of a secret."""
    if secret is None:
        return {}
    secret = secret.strip()
    if not (secret and secret.isascii() and secret.isprintable()):
        raise Invalid("the secret is empty, or has other characters than printable ASCII",
                      "pass the secret of a user, as 'leased user add' prints it")
    for endpoint in endpoints.all:
        if endpoint.exposes():
            raise Invalid(f"the secret is not sent without TLS to {endpoint.url}, which is not a loopback address",
                          "use a URL that begins with https://")
    return {"Authorization": "Bearer " + secret}


def _alive(connection: http.client.HTTPConnection) -> bool:
    """Report whether an idle connection is open: the server has sent nothing, not even its end."""
    if not hasattr(select, "poll"):  # on Windows, and under eventlet
        return not select.select([connection.sock], [], [], 0)[0]
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def decode(status: int, text: bytes) -> Answer | LeasedError:
    """Return the answer, or the exception of a failed call. The last line of a stream may be an error, too."""
    try:
        answer = json.loads(text or b"{}")
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        refused = 400 <= status < 500 and status not in (408, 429)
        kind = Invalid if refused else Uncertain
        return kind(f"the answer with status {status} is not JSON; is this the port of a leased member?")
    return from_answer(answer) if status != 200 or "code" in answer else answer
