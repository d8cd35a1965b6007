"""A gate for Redis: one script checks the token, writes and raises the mark. Needs redis-py.

The mark is only as durable as the data: see docs/GATES.md for the settings of the server. A
gate sends each write once. If the answer is lost it raises Uncertain, and the write may have
happened. Keys of a resource have it as their hash tag: key("orders/42", ":lines").

    gate = leased.redisgate.Gate(redis.Redis())
    with client.lock("orders/42") as lease:
        gate.enter(lease)  # before the first read
        gate.write(lease, ("SET", key("orders/42", ":status"), "paid"), ("RPUSH", key("orders/42", ":log"), "paid"))
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from . import _lua
from .errors import Invalid, LeasedError, Uncertain
from .fencing import MAX_JUMP, Fenced, parse_token, refusal

Words = tuple[Any, ...]

_MARKS = "leased:mark:"
_MAX_ARGS = 4000  # Lua passes them on its stack


def _tag(resource: str) -> str:
    return resource.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


def key(resource: str, suffix: str = "") -> str:
    """Return the name of a key of the resource, in the slot of its mark."""
    return "{" + _tag(resource) + "}" + suffix


def mark_key(resource: str) -> str:
    """Return the key of the resource's mark, for inspection."""
    return _MARKS + key(resource)


class _Gate:
    """What a gate sends, and how it reads the answer."""

    def __init__(self, client: Any, *, max_jump: int = MAX_JUMP, any_slot: bool = False) -> None:
        if not hasattr(client, "connection_pool") or hasattr(client, "command_stack"):  # a cluster, or a pipeline
            raise Invalid("the gate needs a client of one Redis server", "pass a redis.Redis or redis.asyncio.Redis")
        self._pool = client.connection_pool
        self._max_jump = max_jump
        self._any_slot = any_slot

    def _writes(self, lease: Fenced, resource: str | None, commands: Sequence[Sequence[Any]]) -> Iterator[Words]:
        keys: list[str | bytes] = []
        args: list[Any] = []
        for name, target, *rest in commands:
            command = str(name).upper()
            if command not in _lua.ONE_KEY and (command not in _lua.KEYS_ONLY or rest):
                raise Invalid(f"the command {command[:40]!r} is not known to access exactly one key",
                              "use run with a script that declares its keys")
            if len(rest) > _MAX_ARGS:
                raise Invalid(f"{command} has {len(rest)} arguments, at most {_MAX_ARGS} are allowed",
                              "use several commands")
            keys.append(target)
            args += [command, len(rest), *rest]
        return self._script(lease, resource, _lua.WRITE, keys, args)

    def _script(self, lease: Fenced, resource: str | None, source: str, keys: Sequence[str | bytes],
                args: Sequence[Any]) -> Iterator[Words]:
        """Yield the command, and the one for a server that does not know the script."""
        name = lease.guard(resource)
        for k in (k.decode(errors="surrogateescape") if isinstance(k, bytes) else k for k in keys):
            if k.startswith(_MARKS):
                raise Invalid(f"the key {k!r} is reserved for a mark", "use another key")
            inside = k.partition("{")[2].partition("}")
            if not self._any_slot and (inside[0] if inside[0] and inside[1] else k) != _tag(name):
                raise Invalid(f"the key {k!r} is not in the slot of {name!r}", "name it with leased.redisgate.key")
        rest = (len(keys) + 1, mark_key(name), *keys, str(lease.token), str(self._max_jump), *args)
        yield ("EVALSHA", hashlib.sha1(source.encode()).hexdigest(), *rest)
        yield ("EVAL", source, *rest)

    def _result(self, lease: Fenced, resource: str | None, reply: Any) -> Any:
        """Return the result of a script, or raise the refusal."""
        if not isinstance(reply, list) or not reply:
            return None
        kind, *rest = [r.decode(errors="replace") if isinstance(r, bytes) else r for r in reply[:3]]  # one may be data
        if kind in ("stale", "jump"):
            raise refusal(lease.guard(resource), lease.token, parse_token(rest[0]), jump=kind == "jump")
        if kind == "failed" and not rest[0]:
            raise LeasedError(f"nothing was written: {rest[1]}")
        if kind in ("failed", "raised"):
            raise Uncertain(f"a command failed, and others may have written: {rest[-1]}")
        return reply[1] if len(reply) > 1 else None


def _custom(body: str) -> str:
    return _lua.CUSTOM.replace("\nBODY\n", "\n" + body + "\n", 1)


class Gate(_Gate):
    """A gate over a redis.Redis client."""

    def enter(self, lease: Fenced, resource: str | None = None) -> None:
        """Raise the mark, before the holder reads what it will change."""
        self._do(lease, resource, self._script(lease, resource, _lua.ENTER, (), ()))

    def write(self, lease: Fenced, *commands: Sequence[Any], resource: str | None = None) -> None:
        """Run commands that each write one key, such as ("SET", key, value), in one step with the check."""
        self._do(lease, resource, self._writes(lease, resource, commands))

    def run(self, lease: Fenced, script: str, keys: Sequence[str | bytes] = (), args: Sequence[Any] = (),
            resource: str | None = None) -> Any:
        """Run a Lua script, as for EVAL, if the token is admitted, and return its result."""
        return self._do(lease, resource, self._script(lease, resource, _custom(script), keys, args))

    def _do(self, lease: Fenced, resource: str | None, attempts: Iterator[Words]) -> Any:
        from redis.exceptions import NoScriptError
        try:
            return self._result(lease, resource, self._send(next(attempts)))
        except NoScriptError:
            return self._result(lease, resource, self._send(next(attempts)))

    def _send(self, words: Words) -> Any:
        """Send a command once: the client itself may be configured to retry."""
        from redis.exceptions import ResponseError
        connection = self._pool.get_connection(words[0])
        try:
            connection.send_command(*words)
            return connection.read_response()
        except ResponseError:
            raise
        except BaseException as error:
            connection.disconnect()
            _check_answer(error)
            raise
        finally:
            self._pool.release(connection)


class AsyncGate(_Gate):
    """A gate over a redis.asyncio.Redis client. See Gate."""

    async def enter(self, lease: Fenced, resource: str | None = None) -> None:
        """Raise the mark, before the holder reads what it will change."""
        await self._do(lease, resource, self._script(lease, resource, _lua.ENTER, (), ()))

    async def write(self, lease: Fenced, *commands: Sequence[Any], resource: str | None = None) -> None:
        """Run commands that each write one key, such as ("SET", key, value), in one step with the check."""
        await self._do(lease, resource, self._writes(lease, resource, commands))

    async def run(self, lease: Fenced, script: str, keys: Sequence[str | bytes] = (), args: Sequence[Any] = (),
                  resource: str | None = None) -> Any:
        """Run a Lua script, as for EVAL, if the token is admitted, and return its result."""
        return await self._do(lease, resource, self._script(lease, resource, _custom(script), keys, args))

    async def _do(self, lease: Fenced, resource: str | None, attempts: Iterator[Words]) -> Any:
        from redis.exceptions import NoScriptError
        try:
            return self._result(lease, resource, await self._send(next(attempts)))
        except NoScriptError:
            return self._result(lease, resource, await self._send(next(attempts)))

    async def _send(self, words: Words) -> Any:
        from redis.exceptions import ResponseError
        connection = await self._pool.get_connection(words[0])
        try:
            await connection.send_command(*words)
            return await connection.read_response()
        except ResponseError:
            raise
        except BaseException as error:
            await connection.disconnect()
            _check_answer(error)
            raise
        finally:
            await self._pool.release(connection)


def _check_answer(error: BaseException) -> None:
    """Raise Uncertain for a command that was sent and not answered, unless the caller was interrupted."""
    if isinstance(error, Exception):
        raise Uncertain(f"the connection failed, and the write may or may not have happened: {error}",
                        "read the data again under the same token") from error
