"""The exceptions of leased. All of them are below LeasedError."""

from __future__ import annotations

from typing import Any, Mapping


class LeasedError(Exception):
    """An error of the lock service, or of a fence.

    code is the machine-readable code of docs/API.md, and hint says what to do.
    """

    code = "internal"

    def __init__(self, message: str, hint: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.details: Mapping[str, Any] = details or {}

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.hint})" if self.hint else message


class Held(LeasedError):
    """Others hold the lock, or are ahead in its queue."""

    code = "held"


class LeaseLost(LeasedError):
    """The lease has ended without a release. Stop writing."""

    code = "lost"


class StaleToken(LeasedError):
    """A fence refused a write, because a newer token has been admitted. Nothing was written."""

    code = "stale"


class Unavailable(LeasedError):
    """The service could not serve the call, which had no effect. Trying again is safe."""

    code = "unavailable"


class Uncertain(LeasedError):
    """The call may or may not have had an effect."""

    code = "uncertain"


class ModeMismatch(LeasedError):
    """The lock has another mode than the caller expects."""

    code = "mode-mismatch"

    @property
    def mode(self) -> str:
        """The mode of the lock."""
        return str(self.details.get("mode", ""))


class Unsupported(LeasedError):
    """The mode of the lock, or the service, does not support the request."""

    code = "unsupported"


class Forbidden(LeasedError):
    """The user lacks a right, which the message names."""

    code = "forbidden"


class Unauthenticated(LeasedError):
    """The service has users, and the secret is missing or wrong."""

    code = "unauthenticated"


class LimitExceeded(LeasedError):
    """The call would exceed a limit, which the message names."""

    code = "limit"


class Invalid(LeasedError):
    """The request breaks a rule, which the message names."""

    code = "invalid"


_BY_CODE: dict[str, type[LeasedError]] = {code: kind for kind, codes in (
    (Held, "held"),
    (ModeMismatch, "mode-mismatch"),
    (LeaseLost, "not-held expired taken lost released"),
    (Invalid, "invalid invalid-resource too-large permits-mismatch"),
    (Unauthenticated, "unauthenticated"),
    (Forbidden, "forbidden"),
    (LimitExceeded, "limit"),
    (Unsupported, "unsupported"),
    (Unavailable, "unavailable not-leader unreachable"),
) for code in codes.split()}


def from_answer(answer: Mapping[str, Any]) -> LeasedError:
    """Return the exception for the JSON of an error. An unknown code is uncertain."""
    code = str(answer.get("code", "internal"))
    error = _BY_CODE.get(code, Uncertain)(str(answer.get("message", code)), str(answer.get("hint", "")), answer)
    error.code = code
    return error
