"""Runs the examples of docs/PYTHON.md, docs/MIGRATING.md and examples/python, and builds the wheel."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import psycopg
import pytest

from conftest import ROOT, Member
from test_gates import server  # noqa: F401, the Redis server

PLACE = "http://127.0.0.1:7420"


def run(code: str, environment: dict[str, str]) -> None:
    """Run a program in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "sdk/python/src"), **environment})
    assert done.returncode == 0, done.stderr


def page(name: str, service: Member, database: str, server: int) -> int:  # noqa: F811
    """Run the blocks of a page as one program, and return their number."""
    with psycopg.connect(database) as db:
        db.execute("CREATE TABLE IF NOT EXISTS accounts (id int PRIMARY KEY, balance int)")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / name).read_text(), re.S)
    run("\n".join(blocks).replace(PLACE, service.url), {"DATABASE": database, "REDIS_PORT": str(server)})
    return len(blocks)


def test_page(service: Member, database: str, server: int) -> None:  # noqa: F811
    assert page("PYTHON.md", service, database, server) > 8


def test_page_for_users_of_redis_py(service: Member, database: str, server: int) -> None:  # noqa: F811
    """The code before, after, and with both locks: all write, and the last two with a token."""
    with psycopg.connect(database) as db:
        db.execute("CREATE TABLE IF NOT EXISTS accounts (id int PRIMARY KEY, balance int)")
        db.execute("INSERT INTO accounts VALUES (7, 100) ON CONFLICT (id) DO UPDATE SET balance = 100")
    assert page("MIGRATING.md", service, database, server) == 3
    with psycopg.connect(database) as db:
        assert db.execute("SELECT balance FROM accounts WHERE id = 7").fetchone() == (70,)
        with pytest.raises(psycopg.Error, match="LF001|stale"):
            db.execute("SELECT leased_fence('account/7', 1)")


@pytest.mark.parametrize("example", sorted((ROOT / "examples/python").glob("*.py")), ids=str)
def test_example(service: Member, example: pathlib.Path, tmp_path: pathlib.Path) -> None:
    run(example.read_text().replace(PLACE, service.url), {"FOLDER": str(tmp_path)})


def test_wheel() -> None:
    """The wheel contains the whole package with its license, and nothing else."""
    subprocess.run(["make", "--no-print-directory", "wheel"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    with zipfile.ZipFile(next((ROOT / "out").glob("leased-*.whl"))) as wheel:
        names = wheel.namelist()
    packed = {name.removeprefix("leased/") for name in names if name.startswith("leased/")}
    assert any(name.endswith("/LICENSE") for name in names)
    assert packed == {path.name for path in (ROOT / "sdk/python/src/leased").iterdir() if path.is_file()}
