"""Time, as a holder must count it."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass


def suspended_clock(platform: str, clocks: object) -> int | None:
    """Return the clock that also counts the time for which the machine is suspended, or None if there is no other.

    On macOS it is CLOCK_MONOTONIC_RAW, which is mach_continuous_time; on Linux the clock of this name stops.
    """
    return getattr(clocks, "CLOCK_MONOTONIC_RAW" if platform == "darwin" else "CLOCK_BOOTTIME", None)


_BOOTTIME = suspended_clock(sys.platform, time)


@dataclass(frozen=True)
class Instant:
    """A moment on two clocks. One of them also counts the time that the machine is suspended."""

    monotonic: float
    boottime: float

    @staticmethod
    def now() -> Instant:
        """Return the present moment."""
        monotonic = time.monotonic()
        return Instant(monotonic, time.clock_gettime(_BOOTTIME) if _BOOTTIME is not None else monotonic)

    def elapsed(self) -> float:
        """Return the seconds since this moment, by the clock that counts more of them."""
        now = Instant.now()
        return max(now.monotonic - self.monotonic, now.boottime - self.boottime)


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration of the service, such as "1m30s"."""
    parts = re.findall(r"([0-9.]+)(h|ms|us|µs|ns|m|s)", text)
    if not parts:
        raise ValueError(f"not a duration: {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """Return seconds as the service reads them."""
    return f"{round(seconds * 1000)}ms"
