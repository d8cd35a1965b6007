"""What a client decides, without I/O.

The functions of Core are generators. They yield a Call or a Pause, and receive the answer of
the call, or the exception of it. The synchronous and the asynchronous client run the same
generators.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ._clock import Instant, format_duration, parse_duration
from .errors import Held, Invalid, LeasedError, LeaseLost, ModeMismatch, Unavailable, Uncertain

T = TypeVar("T")
Answer = Mapping[str, Any]

ANSWER = 4.0  # seconds until another member is asked; a member waits three for a leader
WAIT = 10.0  # seconds for which one member is asked to wait
REPEAT = 5.0  # seconds for which a read, a release or a close is repeated, and an acquire beyond its wait
FOREVER = 3600.0  # the longest wait of one call
DRIFT = 0.01  # of the TTL: clocks may run at slightly different rates
KNOWN_MODES = 10_000  # locks whose mode is remembered
NOTICE = 1.0  # the longest sleep while there are leases: no timer counts while a machine is suspended
SILENCE = 10.0  # seconds without a line until a stream counts as broken; the service sends one every two


@dataclass(frozen=True)
class Call:
    """A call of the service, and the seconds after which its answer, or the next line of a stream, counts as lost.

    Lines of a stream are passed to each. A line with an error ends the call.
    """

    method: str
    body: Mapping[str, Any]
    limit: float = ANSWER
    each: Callable[[Answer], None] | None = None
    waits: bool = False  # for longer than its limit: that it has no answer says nothing about the member


@dataclass(frozen=True)
class Pause:
    """A pause of some seconds."""

    seconds: float


Steps = Generator[Call | Pause, Answer, T]


class Closed(Invalid):
    """The client is closed."""


@dataclass(eq=False)
class KeepAlive:
    """What one renewal extends: a session with its leases, or a lease in efficiency mode."""

    name: Mapping[str, Any]  # for the service
    ttl: float
    renewed: Instant  # from when the TTL counts: before the request was sent
    grants: set[Grant] = field(default_factory=set)
    nonce: int = 0
    attempts: set[int] = field(default_factory=set)  # nonces of the acquires under way
    used: Instant = field(default_factory=Instant.now)  # when it last had a lease or an attempt
    busy: bool = False  # a renewal is under way
    doubt: bool = False  # a lease may be lost: the next renewal tells
    watched: bool = False  # a stream reports losses
    metadata: Mapping[str, Any] = field(default_factory=dict)  # that renewals of a lease in efficiency mode carry

    def left(self) -> float:
        """Return the seconds until it ends without a renewal."""
        return self.ttl * (1 - DRIFT) - self.renewed.elapsed()

    def due(self) -> float:
        """Return the seconds until it must be renewed."""
        return 0.0 if self.doubt else self.ttl / 3 - self.renewed.elapsed()

    def limit(self) -> float:
        """Return how long one member may take to answer before another one is asked."""
        return max(1.0, min(self.ttl / 3, ANSWER))

    def end(self) -> Call:
        """Return the call that ends it."""
        return Call("close-session" if "sessionId" in self.name else "release", self.name, self.limit())


@dataclass(eq=False)
class Ending:
    """A call that ends something."""

    kept: KeepAlive
    call: Call


@dataclass
class Place:
    """The place of an acquire in a session, which is in use meanwhile, also between two calls."""

    session: KeepAlive | None = None
    nonce: int = 0
    doubt: Ending | None = None  # ends the attempt, which the service may have
    grant: Grant | None = None  # that the client keeps alive, even if the caller is interrupted before it gets it

    def enter(self, session: KeepAlive) -> None:
        """Take a place in a session, instead of the place before. The core is locked."""
        self.leave()
        session.nonce += 1
        session.attempts.add(session.nonce)
        self.session, self.nonce, self.doubt = session, session.nonce, None

    def leave(self) -> None:
        """Leave the session."""
        if self.session is not None:
            self.session.attempts.discard(self.nonce)


@dataclass(eq=False)
class Grant:
    """A lease as the core knows it."""

    resources: tuple[str, ...]
    token: int
    mode: str
    slot: int
    kept: KeepAlive
    name: Mapping[str, Any]  # for a release
    lost: Any = None
    ended: LeasedError | None = None

    def remaining(self) -> float:
        """Return the seconds for which the lease is valid without a renewal."""
        return 0.0 if self.ended is not None else max(0.0, self.kept.left())

    def expired(self) -> bool:
        """Report whether the lease has passed its deadline."""
        return self.ended is None and self.kept.left() <= 0

    def end(self, cause: LeasedError) -> None:
        """End the lease for its holder."""
        if self.ended is None:
            self.ended = cause
            self.lost.set()

    def loss(self) -> LeasedError | None:
        """Return why the lease ended, unless it was released."""
        if self.expired():
            return _expired(self)
        return None if self.ended is None or self.ended.code == "released" else self.ended


@dataclass(frozen=True)
class Wanted:
    """What a caller asks for."""

    resources: tuple[str, ...]
    ttl: float | None = None
    wait: float | None = None  # seconds; None waits until the lock is granted
    shared: bool = False
    permits: int = 0
    mode: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_ttl(self.ttl)

    def rest(self, began: Instant, ttl: float) -> float:
        """Return when the caller gives up: a service that does not serve it gets a little longer than the wait."""
        return FOREVER if self.wait is None else self.wait + min(ttl, REPEAT) - began.elapsed()

    def body(self, holder: str) -> dict[str, Any]:
        body: dict[str, Any] = {"holder": holder}
        if len(self.resources) == 1:
            body["resource"] = self.resources[0]
        else:
            body["resources"] = list(self.resources)
        if self.shared:
            body["shared"] = True
        if self.permits:
            body["permits"] = self.permits
        if self.metadata:
            body["metadata"] = dict(self.metadata)
        return body


def resources(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return one lock, or a set of locks."""
    if not names:
        raise Invalid("a lock needs a name", "pass a name, or several names for a set")
    return (names,) if isinstance(names, str) else tuple(sorted(set(names)))


def check_ttl(ttl: float | None) -> None:
    """Refuse a TTL that is not positive."""
    if ttl is not None and not ttl > 0:
        raise Invalid(f"a TTL of {ttl} seconds is not positive", "pass more than 0 seconds, or None for the default")


class Core:
    """The state of one client.

    event returns the event of a lease that is set when the lease is lost. wake is called when
    step has something to do. Neither is called while the lock of the core is held.
    """

    def __init__(self, holder: str | None, ttl: float, event: Callable[[Grant], Any],
                 wake: Callable[[], None]) -> None:
        check_ttl(ttl)
        self.holder = holder
        self.ttl = ttl
        self.event = event
        self.wake = wake
        self.lock = threading.Lock()
        self.closed = False
        self.sessions: dict[float, KeepAlive] = {}  # for new leases, by the TTL that was asked for
        self.kept: set[KeepAlive] = set()
        self.endings: set[Ending] = set()  # that are not served yet
        self.unwanted: list[Ending] = []  # those of them that nothing runs yet
        self.modes: dict[str, str] = {}

    def acquire(self, wanted: Wanted, place: Place | None = None) -> Steps[Grant]:
        """Acquire a lease. A caller that passes a place finds the grant there after an interrupt, too."""
        place = place or Place()
        try:
            return (yield from self._acquire(wanted, place))
        except BaseException:
            if place.doubt is not None:
                yield from self._unwant(place.doubt)
            raise
        finally:
            place.leave()

    def _acquire(self, wanted: Wanted, place: Place) -> Steps[Grant]:
        """Acquire a lease. An attempt whose answer was lost is repeated under its nonce, or its random name.

        A member that answers an attempt in efficiency mode with an error withdraws it, perhaps later. So the next
        attempt has another name, unless an earlier call under this one was not answered.
        """
        began = Instant.now()
        attempt, guess = secrets.token_hex(16), "correctness"
        ttl = wanted.ttl or self.ttl
        session: KeepAlive | None = None
        failures = 0
        switched: object = None  # the lock of which the service has just named another mode
        while True:
            earlier = place.doubt  # of the calls before
            try:
                self._check_open()
                body = wanted.body(self.holder or f"{socket.gethostname()}:{os.getpid()}")  # of a forked child, too
                body["mode"] = wanted.mode or self.modes.get(wanted.resources[0], guess)
                left = FOREVER if wanted.wait is None else min(FOREVER, max(0.0, wanted.wait - began.elapsed()))
                if body["mode"] == "correctness":
                    if session is None or session not in self.kept or session.left() <= 0:
                        session = yield from self._session(ttl, wanted.rest(began, ttl))
                        with self.lock:
                            place.enter(session)
                        earlier = None  # it ended with its session
                    name = _attempt(session, place.nonce)
                    body.update(name)
                    doubt = Ending(session, Call("release", name, session.limit()))
                else:
                    place.leave()
                    session = None
                    body["ttl"], body["attempt"] = format_duration(ttl), attempt
                    left = min(left, WAIT)  # it has no place in a queue that a copy could take over
                    doubt = Ending(KeepAlive(body, ttl, began), Call("acquire", {**body, "wait": "0ms"}))
                body["wait"] = format_duration(left)
                sent = Instant.now()
                limit = min(min(WAIT, left) + ANSWER, max(1.0, wanted.rest(began, ttl)))
                place.doubt = doubt
                answer = yield Call("acquire", body, limit, waits=left > limit)
                if guess == body["mode"] == "efficiency":
                    self._learn(wanted.resources[0], guess)
                # A grant that is not used is released: a copy would return it.
                attempt, earlier = secrets.token_hex(16), None
                return (yield from self._granted(answer, sent, session, place))
            except ModeMismatch as error:
                place.doubt = None
                if wanted.mode or not error.mode or switched and wanted.rest(began, ttl) < 0:
                    raise
                lock = error.details.get("resource", wanted.resources[0])
                if switched and lock != switched:
                    raise Invalid(f"a set must have one mode, but one lock of {', '.join(wanted.resources)} is in "
                                  f"{error.mode} mode and another one is not",
                                  "take the locks one after the other") from error
                self._learn(wanted.resources[0], error.mode)
                session = None
                if not switched:
                    switched = lock
                    continue
                failures += 1  # the members do not agree yet
            except Held:  # the attempt has ended; in efficiency mode, an earlier call may still be granted
                place.doubt = earlier if session is None else None
                if wanted.wait is not None and began.elapsed() >= wanted.wait:
                    raise
                session = None
            except LeaseLost:
                place.doubt = None
                if session is not None:
                    self._retire(session)
                    self._suspect(session)
                session = None
                if wanted.rest(began, ttl) < 0:
                    raise
            except (Unavailable, Uncertain) as error:
                failures += 1
                answered = "code" in error.details
                if isinstance(error, Unavailable) or answered and session is None:
                    place.doubt = earlier
                if answered and place.doubt is None:
                    attempt = secrets.token_hex(16)
                    if session is None and not (wanted.shared or wanted.permits):
                        guess = "efficiency"  # which needs no leader, unlike a session
                if wanted.rest(began, ttl) < 0:
                    raise
            except LeasedError:  # the service refused this copy of the attempt
                place.doubt = earlier
                raise
            switched = None
            yield _pause(failures)

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("the client is closed", "create another one")

    def _learn(self, name: str, mode: str) -> None:
        if len(self.modes) >= KNOWN_MODES:
            self.modes = {}
        self.modes[name] = mode

    def _session(self, ttl: float, limit: float) -> Steps[KeepAlive]:
        """Return the open session for leases of this TTL."""
        with self.lock:
            session = self.sessions.get(ttl)
            if session is not None and session.left() > 0:
                session.used = Instant.now()
                return session
        sent = Instant.now()
        try:
            answer = yield Call("open-session", {"ttl": format_duration(ttl), "sessionId": secrets.token_hex(16)},
                                max(1.0, min(limit, ANSWER)))
        except Uncertain as error:  # a session without leases has no effect
            raise Unavailable(str(error.args[0]), error.hint) from error
        opened = KeepAlive({"sessionId": str(answer["sessionId"])}, parse_duration(str(answer["ttl"])), sent)
        with self.lock:
            session = self.sessions.get(ttl)
            if session is None or session.left() <= 0:
                session = opened
            used = session is opened and not self.closed
            if used:
                self.sessions[ttl] = opened
                self.kept.add(opened)
        if used:
            self.wake()
        else:  # another thread was first
            yield from self._unwant(Ending(opened, opened.end()))
        self._check_open()
        return session

    def _retire(self, session: KeepAlive) -> None:
        """Do not use a session for new leases."""
        with self.lock:
            self.sessions = {ttl: known for ttl, known in self.sessions.items() if known is not session}

    def _suspect(self, kept: KeepAlive) -> None:
        """Have the next renewal tell, at once, what is lost."""
        kept.doubt = True
        self.wake()

    def _granted(self, answer: Answer, sent: Instant, session: KeepAlive | None, place: Place) -> Steps[Grant]:
        names = tuple(str(name) for name in answer["resources"])
        token = int(answer["token"])
        if session is not None:
            kept, name = session, _attempt(session, place.nonce)
        else:
            name = {"resource": names[0], "token": token}
            kept = KeepAlive(name, parse_duration(str(answer["ttl"])), sent)
        grant = Grant(names, token, str(answer["mode"]), int(answer.get("slot", 0)), kept, name)
        try:
            place.doubt = None  # there is a grant to release
            grant.lost = self.event(grant)
            if session is None and kept.due() <= 0:  # after a wait: it was granted at an unknown time
                sent = Instant.now()
                yield Call("renew", name, kept.limit())
                kept.renewed = sent
            with self.lock:
                over = session is not None and (session not in self.kept or place.nonce not in session.attempts)
                if kept.left() <= 0 or self.closed or over:
                    raise LeaseLost(f"the lease of {names[0]!r} ended before its grant arrived")
                place.grant = grant
                kept.grants.add(grant)
                self.kept.add(kept)
        except BaseException:
            yield from self._unwant(Ending(kept, Call("release", name, kept.limit())))
            raise
        if session is None:
            self.wake()
        return grant

    def release(self, grant: Grant) -> Steps[None]:
        """Release a lease. It is not used any more even if the call fails, and then is released in the background."""
        with self.lock:
            if grant.ended is not None:
                return
            left = grant.remaining()
            self._mark_released(grant)
        call = Call("release", grant.name, grant.kept.limit())
        try:
            yield from self.repeat(call, min(left, REPEAT))
        except LeaseLost:
            pass
        except BaseException:  # the session would keep it
            yield from self._unwant(Ending(grant.kept, call))
            raise

    def abandon(self, grant: Grant) -> None:
        """Have a lease released in the background. Its caller was interrupted before it got the lease."""
        with self.lock:
            if grant.ended is not None or self.closed:
                return
            self._mark_released(grant)
            self._end_later(Ending(grant.kept, Call("release", grant.name, grant.kept.limit())))
        self.wake()

    def describe(self, grant: Grant, metadata: Mapping[str, str]) -> Steps[None]:
        """Replace the metadata of a lease. The call is a renewal, but the deadline of the holder stays."""
        body = {"resource": grant.resources[0], "token": grant.token, "metadata": dict(metadata)}
        yield from self.repeat(Call("renew", body, grant.kept.limit()), grant.remaining())
        if "sessionId" not in grant.kept.name:  # a renewal that is under way may restore the metadata before
            grant.kept.metadata = {"metadata": body["metadata"]}

    def _mark_released(self, grant: Grant) -> None:
        """End a lease for its holder, who does not want it. The core is locked."""
        grant.ended = LeaseLost("the lease is released")
        grant.ended.code = "released"
        self._leave(grant)

    def _leave(self, grant: Grant) -> None:
        grant.kept.grants.discard(grant)
        if "sessionId" not in grant.kept.name:
            self.kept.discard(grant.kept)

    def repeat(self, call: Call, seconds: float = REPEAT) -> Steps[Answer]:
        """Make a call that can be repeated, until it is served or some seconds have passed."""
        began = Instant.now()
        failures = 0
        uncertain: Uncertain | None = None  # an earlier call may have had its effect
        while True:
            self._check_open()
            try:
                return (yield call)
            except (Unavailable, Uncertain) as error:
                uncertain = error if isinstance(error, Uncertain) else uncertain
                failures += 1
                if began.elapsed() >= seconds:
                    raise uncertain or error
            except LeaseLost:
                if uncertain is None or call.method != "break":
                    raise
                return {}  # the earlier call has ended the lease
            yield _pause(failures)

    def _unwant(self, ending: Ending) -> Steps[None]:
        """Have something ended in the background. After a close nothing runs there: then end it now."""
        with self.lock:
            closed = Instant.now() if self.closed else None
            if closed is None:
                self._end_later(ending)
        if closed is None:
            self.wake()
        else:
            yield from self._discard(ending, closed)

    def _end_later(self, ending: Ending) -> None:
        self.endings.add(ending)
        self.unwanted.append(ending)

    def step(self) -> tuple[list[Steps[None]], list[Steps[None]], float]:
        """End what has expired. Return what is to be done now, what to watch, and the seconds until the next step.

        The caller runs what is to be done side by side and beside the next steps, so that neither a
        deadline nor a renewal waits for another call. It may watch nothing.
        """
        todo: list[Steps[None]] = []
        watches: list[Steps[None]] = []
        expired: list[Grant] = []
        pause = 60.0
        with self.lock:
            self._retire_idle()
            current = set(self.sessions.values())
            for kept in list(self.kept):
                idle = not kept.grants and not kept.attempts and kept not in current
                if kept.left() <= 0 or idle:
                    self.kept.discard(kept)
                    self._end_later(Ending(kept, kept.end()))  # a late renewal may have kept it
                    expired += kept.grants
                    continue
                if kept.grants and "sessionId" in kept.name and not kept.watched:
                    kept.watched = True
                    watches.append(self._watch(kept))
                if not kept.busy:
                    if kept.due() <= 0:
                        kept.busy = True
                        todo.append(self._renew(kept))
                    else:
                        pause = min(pause, kept.due())
                pause = min(pause, kept.left(), NOTICE)
            todo += [self._discard(ending) for ending in self.unwanted]
            self.unwanted = []
        for grant in expired:
            grant.end(_expired(grant))
        return todo, watches, max(0.0, pause)

    def _retire_idle(self) -> None:
        """Keep the session of the default TTL, and those that were used in the last TTL."""
        for ttl, session in list(self.sessions.items()):
            if ttl == self.ttl or session.grants or session.attempts:
                session.used = Instant.now()
            elif session.used.elapsed() > session.ttl:
                del self.sessions[ttl]

    def _renew(self, kept: KeepAlive) -> Steps[None]:
        """Renew a session or a lease repeatedly, until a member answers or it has ended."""
        failures = 0
        try:
            while kept in self.kept and kept.left() > 0:
                with self.lock:
                    grants = list(kept.grants)
                sent = Instant.now()
                kept.doubt = False
                try:
                    answer = yield Call("renew", {**kept.name, **kept.metadata}, kept.limit())
                except LeaseLost as error:
                    self._lost(kept, error)
                    return
                except LeasedError:  # also a revoked secret: the leases end at their deadline
                    failures += 1
                else:
                    self._extend(kept, grants, sent, {int(token) for token in answer.get("tokens", ())})
                    return
                yield _pause(failures)
        finally:
            kept.busy = False
            self.wake()

    def _watch(self, kept: KeepAlive) -> Steps[None]:
        """Watch a session for losses until it ends. Each of them is confirmed by a renewal.

        Without a stream, renewals tell of losses later.
        """
        def told(event: Answer) -> None:
            tokens = {int(token) for token in event.get("tokens", ())}
            with self.lock:
                gone = event.get("type") == "synced" and any(grant.token not in tokens for grant in kept.grants)
            if event.get("type") == "lost":
                kept.attempts.discard(int(event.get("nonce", 0)))  # its grant may arrive later
            if gone or event.get("type") == "lost":
                self._suspect(kept)

        while kept in self.kept:
            try:
                yield Call("watch-session", kept.name, SILENCE, told)
            except LeaseLost:
                self._suspect(kept)
            except LeasedError:  # also if another member becomes leader
                pass
            yield _pause(6)

    def _extend(self, kept: KeepAlive, grants: list[Grant], sent: Instant, tokens: set[int]) -> None:
        """Extend the leases that a renewal names. The others were lost."""
        missing = [grant for grant in grants if grant.token not in tokens]
        with self.lock:
            if kept.left() > 0:  # a lease that has expired for its holder stays expired
                kept.renewed = sent
            for grant in missing:
                self._leave(grant)
        for grant in missing:
            grant.end(LeaseLost(f"the service does not have the lease of {grant.resources[0]!r} any more"))

    def _lost(self, kept: KeepAlive, cause: LeasedError) -> None:
        """End everything that a lost session keeps."""
        self._retire(kept)
        with self.lock:
            self.kept.discard(kept)
            grants, kept.grants = kept.grants, set()
        for grant in grants:
            grant.end(cause)

    def _discard(self, ending: Ending, closed: Instant | None = None) -> Steps[None]:
        """Repeat a call that ends something, until it is served or what it ends has expired.

        An attempt in efficiency mode is ended by a copy of its acquire, which finds its token, and a release. After a
        close it is repeated for REPEAT at most. A call that began before the close is not repeated: close has begun it
        again.
        """
        began, call = closed or Instant.now(), ending.call
        limit = ending.kept.ttl if closed is None else min(ending.kept.ttl, REPEAT)
        failures = 0
        try:
            while True:
                if closed is not None:
                    call = replace(call, limit=max(1.0, min(call.limit, limit - closed.elapsed())))
                try:
                    answer = yield call
                    if call.method != "acquire":
                        return
                    call = Call("release", {"resource": answer["resources"][0], "token": answer["token"]}, call.limit)
                    continue
                except (LeaseLost, Held, ModeMismatch):
                    return
                except LeasedError:
                    failures += 1
                over = ending.kept not in self.kept and began.elapsed() > limit
                if over or self.closed and closed is None:
                    return
                yield _pause(failures)
        finally:
            self.endings.discard(ending)

    def close(self) -> list[Steps[None]]:
        """End everything. Return the calls for it, to be run concurrently."""
        now = Instant.now()
        with self.lock:
            self.closed = True
            kept, self.kept, self.sessions = self.kept, set(), {}
            grants = [grant for known in kept for grant in known.grants]  # a copy: other threads release some
            ends = [Ending(known, known.end()) for known in kept]
            ends += [ending for ending in list(self.endings) if ending.kept not in kept]  # a copy: they end themselves
            self.unwanted = []
        for grant in grants:
            grant.end(LeaseLost("the client is closed"))
        return [self._discard(ending, now) for ending in ends]

    def forget(self) -> None:
        """Forget everything without a call, in a forked process: the leases belong to the parent."""
        self.lock = threading.Lock()
        kept, self.kept = self.kept, set()
        self.sessions, self.endings, self.unwanted = {}, set(), []
        for grant in [grant for known in kept for grant in known.grants]:
            with contextlib.suppress(RuntimeError):  # asyncio's debug mode: the loop belongs to another thread
                grant.end(LeaseLost("the lease belongs to the parent process"))


def _attempt(session: KeepAlive, nonce: int) -> Mapping[str, Any]:
    return {"sessionId": session.name["sessionId"], "nonce": nonce}


def _pause(failures: int) -> Pause:
    return Pause(min(1.0, 0.02 * 2 ** min(failures, 6)) * random.uniform(0.5, 1.0))


def _expired(grant: Grant) -> LeaseLost:
    error = LeaseLost(f"the lease of {grant.resources[0]!r} was not renewed in time")
    error.code = "expired"
    return error
