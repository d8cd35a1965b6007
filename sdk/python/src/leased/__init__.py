"""Locks with fencing tokens: a client of the leased lock service.

A lease alone does not protect data. Its holder may be paused, by a garbage collection, a
SIGSTOP or a suspended machine, and wake up after the lease has passed to another holder. So
every lease has a token, a number that only grows, and a fence in the storage refuses older
tokens. There is no is_held to check and then act on: pass the token with the write.

    import leased

    client = leased.Client("http://127.0.0.1:7420")
    with client.lock("account/7", wait=30) as lease:
        with connection.transaction():
            lease.fence(connection)
            connection.execute("UPDATE accounts SET balance = balance - 10 WHERE id = 7")

leased.aio has the same client for asyncio.
"""

from ._client import Client, Lease, Lock
from .errors import (Forbidden, Held, Invalid, LeasedError, LeaseLost, LimitExceeded, ModeMismatch, StaleToken,
                     Unauthenticated, Unavailable, Uncertain, Unsupported)

__all__ = ["Client", "Forbidden", "Held", "Invalid", "Lease", "LeaseLost", "LeasedError", "LimitExceeded", "Lock",
           "ModeMismatch", "StaleToken", "Unauthenticated", "Unavailable", "Uncertain", "Unsupported"]
