"""A gate for replacing files.

It needs a local file system with atomic rename and with flock between processes, and guards
only replacements that go through it or through the gate of the Go packages, with which it
shares its folder. Mark and data are two files: a crash between them can leave the mark raised
and the data unchanged, which is safe.

    gate = leased.filegate.Gate("/var/lib/reports")
    with client.lock("reports/may") as lease:
        gate.write(lease, b"...")  # open(gate.path("reports/may"), "rb") reads it
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterator

from .errors import LeasedError
from .fencing import MAX_JUMP, Fenced, admit, parse_token

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")


def file_name(resource: str) -> str:
    """Return the name of the file of a resource."""
    data = resource.encode()
    name = "".join(chr(c) if c in _PLAIN and (c != 0x2E or i > 0) else f"%{c:02x}" for i, c in enumerate(data))
    return name if len(name) <= 200 else "~" + hashlib.sha256(data).hexdigest()


class Gate:
    """Gates the files of one folder. Any number of processes, in Go or Python, can use it."""

    def __init__(self, folder: str | os.PathLike[str], *, max_jump: int = MAX_JUMP) -> None:
        self.folder = pathlib.Path(folder)
        self._marks = self.folder / ".leased"
        self._max_jump = max_jump
        self._marks.mkdir(parents=True, exist_ok=True)
        for created in (self.folder, self.folder.absolute().parent):  # on disk before their content
            _sync(created)

    def path(self, resource: str) -> pathlib.Path:
        """Return the path of the file, which always has the complete content of one write."""
        return self.folder / file_name(resource)

    def mark(self, resource: str) -> int:
        """Return the newest token admitted, or 0."""
        path = self._inner(resource, ".mark")
        try:
            text = path.read_bytes().decode("utf-8", "replace")  # read_text would change a "\r" of the name
        except FileNotFoundError:
            return 0
        token, _, rest = text.partition("\n")
        if rest != resource + "\n":
            raise LeasedError(f"{path} is damaged: it is not the mark of {resource!r}")
        return parse_token(token)

    def enter(self, lease: Fenced, resource: str | None = None) -> None:
        """Raise the mark, before the holder reads what it will change."""
        self.admit(lease.guard(resource), lease.token)

    def write(self, lease: Fenced, content: bytes, resource: str | None = None) -> None:
        """Replace the file in one step, or raise StaleToken."""
        self.admit(lease.guard(resource), lease.token, content)

    def admit(self, resource: str, token: int, content: bytes | None = None) -> None:
        """Admit a token, and replace the file if there is content."""
        with self._lock(resource) as check:
            temporary = self._inner(resource, ".new")
            try:
                if content is not None:
                    _write(temporary, content)
                    with contextlib.suppress(FileNotFoundError):
                        temporary.chmod(self.path(resource).stat().st_mode & 0o777)
                mark = self.mark(resource)  # after the content is written, which may take long
                admit(resource, mark, token, self._max_jump)
                check()  # a lock whose file was removed protects nothing
                if token > mark:
                    renewed = self._inner(resource, ".newmark")
                    _write(renewed, f"{token}\n{resource}\n".encode())
                    renewed.rename(self._inner(resource, ".mark"))
                if token:
                    _sync(self._marks)  # also for a mark whose writer may have crashed
                if content is not None:
                    temporary.rename(self.path(resource))
                    _sync(self.folder)
            except BaseException:
                with contextlib.suppress(LeasedError, OSError):
                    check()  # without the lock, the temporary file may be that of another writer
                    temporary.unlink()
                raise

    def _inner(self, resource: str, kind: str) -> pathlib.Path:
        return self._marks / (file_name(resource) + kind)

    @contextlib.contextmanager
    def _lock(self, resource: str) -> Iterator[Callable[[], None]]:
        path = self._inner(resource, ".lock")
        while True:
            with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                check = functools.partial(_check, path, file.fileno())
                try:
                    check()
                except LeasedError:
                    continue
                try:
                    yield check
                finally:
                    fcntl.flock(file, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open
                return


def _check(path: pathlib.Path, fd: int) -> None:
    """Raise an error if the lock file was removed."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(fd), path.stat()):
            return
    raise LeasedError(f"the lock file {path} was removed", "nothing was written; try again")


def _sync(folder: pathlib.Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(path: pathlib.Path, content: bytes) -> None:
    path.unlink(missing_ok=True)  # a writer that lost its lock must not write into this file
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
