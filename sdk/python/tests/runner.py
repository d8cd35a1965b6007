"""Runs the scenarios of sdk/conformance: a line of JSON for each call, and one for each result."""

from __future__ import annotations

import json
import os
import ssl
import sys
import threading
import time
from typing import Any

import leased

clients: dict[str, leased.Client] = {}
leases: dict[str, leased.Lease] = {}
writing = threading.Lock()


def client(call: dict[str, Any]) -> leased.Client:
    """Return the client of a call."""
    key = json.dumps([call["client"], call["endpoints"], call["secret"]])
    with writing:
        if key not in clients:
            context = ssl.create_default_context(cafile=call["ca"]) if call["ca"] else None
            clients[key] = leased.Client(call["endpoints"], secret=call["secret"] or None, ssl_context=context)
        return clients[key]


def run(call: dict[str, Any]) -> dict[str, Any]:
    """Do what a call says."""
    held = leases.get(call["lease"])
    if call["do"] == "acquire":
        try:
            wait, ttl = call["waitMillis"] / 1000, call["ttlMillis"] / 1000 or None
            lease = client(call).lock(call["lock"], wait=wait, ttl=ttl).acquire()
        except leased.Held:
            return {"result": "held"}
        except leased.LeaseLost:
            return {"result": "lost"}
        except leased.Uncertain as error:
            return {"result": f"uncertain: {error}"}
        except leased.Unavailable as error:
            return {"result": f"unavailable: {error}"}
        except leased.LeasedError:
            return {"result": "refused"}
        leases[call["lease"]] = lease
        return {"result": "granted", "token": lease.token, "mode": lease.mode}
    assert held is not None
    if call["do"] == "release":
        held.release()
        return {"result": "released"}
    if call["do"] == "lost":
        held.lost.wait()
    return {"result": "lost" if held.lost.is_set() else "held"}


def answer(call: dict[str, Any]) -> None:
    """Run a call and print its result."""
    try:
        result = run(call)
    except Exception as error:
        result = {"result": f"{type(error).__name__}: {error}"}
    with writing:
        print(json.dumps({"id": call["id"], **result}), flush=True)


if __name__ == "__main__":
    if "FAKETIME_TIMESTAMP_FILE" in os.environ:  # libfaketime breaks the call of the system
        time.sleep = lambda seconds: threading.Event().wait(seconds) and None  # type: ignore[assignment]
    for line in sys.stdin:
        threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
