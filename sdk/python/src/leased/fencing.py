"""The fencing rule, and fences in a database: the check of a token in the same transaction as the write.

The marks are those of the gates of leased, so writers in Go, SQL and Python guard each other.
Create them once with `leased gate ddl --dialect postgres | psql mydb`. See leased.redisgate,
leased.filegate and leased.httpgate for other storages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ._core import Grant
from .errors import Invalid, LeasedError, StaleToken

HEADER = "Fencing-Token"
"""The HTTP header that carries the token of a write."""

MAX_TOKEN = 2**53 - 1
MAX_JUMP = 2**40
"""The largest distance of a token above the mark, unless a gate has another bound."""

_STALE = {"LF001", "LF002", "LF003"}
_MISSING = {"42883", "3F000"}  # an unknown function or schema


def parse_token(text: str) -> int:
    """Parse the only text form of a token: decimal, without a sign, a space or a leading zero. 0 means none."""
    valid = text.isascii() and text.isdecimal() and (text == "0" or not text.startswith("0")) and len(text) < 17
    if not valid or int(text) > MAX_TOKEN:
        raise Invalid(f"{text[:40]!r} is not a fencing token", "send the decimal token of the lease")
    return int(text)


def admit(resource: str, mark: int, token: int, max_jump: int = MAX_JUMP) -> None:
    """Apply the fencing rule: raise StaleToken unless a write with this token is admitted above the mark."""
    if token < mark or token - mark > max_jump:
        raise refusal(resource, token, mark, jump=token > mark)


def refusal(resource: str, token: int, mark: int, jump: bool = False) -> StaleToken:
    """Return the exception for a refused token."""
    details = {"resource": resource, "token": token, "mark": mark}
    if jump:
        return StaleToken(f"fencing token {token} for {resource!r} jumps too far above {mark}",
                          "if the lock service granted it, an operator must raise the bound", details | {"jump": True})
    if token == 0:
        return StaleToken(f"no fencing token: {resource!r} is fenced at {mark}",
                          "acquire its lease and send the token with the write", details)
    return StaleToken(f"stale fencing token {token} for {resource!r}: {mark} has been admitted",
                      "the lease is lost: stop writing", details)


class Fenced:
    """The part of a lease that a fence needs."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    @property
    def resource(self) -> str:
        """The lock, or the first lock of a set."""
        return self._grant.resources[0]

    @property
    def resources(self) -> tuple[str, ...]:
        """All locks under this token."""
        return self._grant.resources

    @property
    def gate_resource(self) -> str:
        """The name to give to a fence: the lock, or the slot of a permit."""
        return f"{self.resource}#{self.slot}" if self.slot else self.resource

    @property
    def token(self) -> int:
        """The fencing token. Pass it with every write."""
        return self._grant.token

    @property
    def mode(self) -> str:
        """"correctness" or "efficiency"."""
        return self._grant.mode

    @property
    def slot(self) -> int:
        """The slot of a permit, else 0."""
        return self._grant.slot

    @property
    def remaining(self) -> float:
        """The seconds until the lease ends without a renewal. Use a fence instead of a check."""
        return self._grant.remaining()

    def fence(self, connection: Any, resource: str | None = None) -> None:
        """Admit the token in the transaction of a database connection, before its first read.

        connection is one of psycopg, psycopg2, SQLAlchemy or Django, or a Session of SQLAlchemy.
        It must be inside a transaction, which also does the writes. A refusal raises
        StaleToken; roll back then.
        A set admits its token for each of its locks, unless resource names the one that guards
        the write.
        """
        names = self.guards(resource)
        if _is_session(connection):
            connection = connection.connection()
        _check_transaction(connection)
        for name in names:
            with _refusals(name, self.token):
                _execute(connection, *_statement(connection, name, self.token))

    async def afence(self, connection: Any, resource: str | None = None) -> None:
        """fence, for an asynchronous connection of psycopg or SQLAlchemy, or an AsyncSession."""
        names = self.guards(resource)
        if _is_session(connection):
            connection = await connection.connection()
        _check_transaction(getattr(connection, "sync_connection", connection))
        for name in names:
            with _refusals(name, self.token):
                await connection.execute(*_statement(connection, name, self.token))

    def guards(self, resource: str | None = None) -> tuple[str, ...]:
        """Return the names to give to a fence: all locks of a set, or one of them."""
        if resource is None:
            return self.resources if len(self.resources) > 1 else (self.gate_resource,)
        if resource not in (*self.resources, self.gate_resource):
            raise LeasedError(f"the lease covers {', '.join(self.resources)}, not {resource}")
        return (self.gate_resource if self.slot else resource,)

    def guard(self, resource: str | None = None) -> str:
        """Return the one name to give to a fence. For a set, name the lock that guards the write."""
        names = self.guards(resource)
        if len(names) > 1:
            raise Invalid(f"the lease is a set: {', '.join(names)}", "pass resource=, the lock that guards the write")
        return names[0]


def _is_session(connection: Any) -> bool:
    """Report whether this is a session of SQLAlchemy: a connection has its driver's connection there."""
    return not _is_sqlalchemy(connection) and callable(getattr(connection, "connection", None))


def _is_sqlalchemy(connection: Any) -> bool:
    return hasattr(connection, "exec_driver_sql")


def _statement(connection: Any, name: str, token: int) -> tuple[Any, Any]:
    """Return the statement that admits a token, and its parameters."""
    if _is_sqlalchemy(connection):
        import sqlalchemy  # which knows how its driver writes parameters
        return sqlalchemy.text("SELECT leased_fence(:name, :token)"), {"name": name, "token": token}
    return "SELECT leased_fence(%s, %s)", (name, token)


@contextlib.contextmanager
def _refusals(name: str, token: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if sqlstate(error) in _STALE:
            raise StaleToken(f"token {token} of {name!r} is refused: {error}",
                             "the lease is lost: stop writing") from error
        if sqlstate(error) in _MISSING:
            raise Invalid("the database has no function leased_fence in its search path",
                          "run 'leased gate ddl --dialect postgres | psql'") from error
        raise


def _check_transaction(connection: Any) -> None:
    """Refuse a connection that would commit the fence before the writes."""
    getattr(connection, "ensure_connection", lambda: None)()  # Django connects late
    driver = getattr(connection, "connection", connection)  # of SQLAlchemy and Django
    driver = getattr(driver, "dbapi_connection", driver)
    if driver is None:
        raise Invalid("the connection is not open", "connect, begin a transaction, fence, write, and commit")
    info = getattr(driver, "info", None)
    if getattr(info, "pipeline_status", 0):
        raise Invalid("the connection is in pipeline mode: a refusal would reach another statement",
                      "fence in the transaction, and begin the pipeline after that")
    if getattr(driver, "autocommit", False) is True and getattr(info, "transaction_status", 0) == 0:
        raise Invalid("the connection is in autocommit mode and outside a transaction: the fence would guard nothing",
                      "begin a transaction, fence, write, and commit")


def _execute(connection: Any, statement: Any, values: Any) -> None:
    if _is_sqlalchemy(connection):
        connection.execute(statement, values)
        return
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def sqlstate(error: BaseException) -> str | None:
    """Return the SQLSTATE of a database error, also of one that SQLAlchemy or Django wraps."""
    seen: BaseException | None = error
    while seen is not None:
        for name in ("sqlstate", "pgcode"):
            code = getattr(seen, name, None)
            if isinstance(code, str):
                return code
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None
