"""Fences in a real PostgreSQL database."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy

import leased


def stale(client: leased.Client, name: str) -> tuple[leased.Lease, leased.Lease]:
    """Return a lease that has passed on, and the newer one."""
    old = client.lock(name).acquire()
    old.release()
    return old, client.lock(name).acquire()


def test_psycopg(client: leased.Client, database: str) -> None:
    old, new = stale(client, "fence/psycopg")
    with psycopg.connect(database) as connection:
        with connection.transaction():
            new.fence(connection)
        with pytest.raises(leased.StaleToken) as refused:
            with connection.transaction():
                old.fence(connection)
        assert "stop writing" in str(refused.value)
        with pytest.raises(leased.Invalid, match="leased gate ddl"), connection.transaction():
            connection.execute("SET LOCAL search_path TO pg_catalog")  # without the functions
            new.fence(connection)
    with pytest.raises(leased.LeasedError, match="not fence/other"):
        new.fence(None, "fence/other")
    with pytest.raises(leased.Invalid, match="not open"):
        new.fence(None)
    new.release()


def test_sqlalchemy(client: leased.Client, database: str) -> None:
    old, new = stale(client, "fence/sqlalchemy")
    engine = sqlalchemy.create_engine(database.replace("postgresql://", "postgresql+psycopg2://"))
    with engine.begin() as connection:
        new.fence(connection)
    with pytest.raises(leased.StaleToken), engine.begin() as connection:
        old.fence(connection)
    new.release()


def test_django(client: leased.Client, database: str) -> None:
    from django.conf import settings
    from django.db import connection, transaction
    host, port = database.rsplit("@", 1)[1].split("/")[0].split(":")
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres",
                                              "USER": "postgres", "HOST": host, "PORT": port}})
    old, new = stale(client, "fence/django")
    assert connection.connection is None, "Django connects late"
    with pytest.raises(leased.Invalid, match="autocommit"):
        new.fence(connection)
    with transaction.atomic():
        new.fence(connection)
    with pytest.raises(leased.StaleToken), transaction.atomic():
        old.fence(connection)
    connection.close()
    new.release()
