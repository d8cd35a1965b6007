"""Fences in a real PostgreSQL database."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio
import sqlalchemy.orm

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
        with pytest.raises(leased.Invalid, match="begin the pipeline after that"), connection.pipeline():
            new.fence(connection)
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
    with sqlalchemy.orm.Session(engine) as session, session.begin():
        new.fence(session)
        with pytest.raises(leased.StaleToken):
            old.fence(session)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(leased.Invalid, match="autocommit"):
            new.fence(connection)
    new.release()


def test_parameters_of_any_driver(client: leased.Client) -> None:
    """Such as asyncpg, whose parameters are not %s."""
    admitted: list[tuple[str, int]] = []
    with client.lock("fence/any") as lease, sqlalchemy.create_engine("sqlite://").begin() as connection:
        connection.connection.dbapi_connection.create_function("leased_fence", 2, lambda *row: admitted.append(row))
        lease.fence(connection)
        assert admitted == [("fence/any", lease.token)]


def test_asyncio(client: leased.Client, database: str) -> None:
    old, new = stale(client, "fence/asyncio")

    async def test() -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            async with connection.transaction():
                await new.afence(connection)
            with pytest.raises(leased.StaleToken):
                await old.afence(connection)
        async with engine.begin() as connection:
            await new.afence(connection)
        async with sqlalchemy.ext.asyncio.AsyncSession(engine) as session, session.begin():
            await new.afence(session)
            with pytest.raises(leased.StaleToken):
                await old.afence(session)

    blocking = sqlalchemy.create_engine(database.replace("postgresql://", "postgresql+psycopg2://"))
    blocking.dialect.is_async = True  # in the place of a driver for asyncio
    sqlalchemy.event.listen(blocking, "before_cursor_execute",
                            lambda *args: sqlalchemy.util.await_only(asyncio.sleep(0)))
    engine = sqlalchemy.ext.asyncio.AsyncEngine(blocking)
    asyncio.run(test())
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
