"""A PostgreSQL database that tests use again must be like a new one."""

import asyncpg

from tests.people import desk
from tests.postgres import PostgresForTests


async def rows(url: str) -> dict[str, int]:
    """How many rows each table of a store has."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'remit'"
        )
        return {
            row["tablename"]: await connection.fetchval(
                f"SELECT count(*) FROM remit.{row['tablename']}"
            )
            for row in tables
        }
    finally:
        await connection.close()


async def store_id(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("SELECT id FROM remit.store"))
    finally:
        await connection.close()


async def test_a_used_database_is_returned_as_a_new_store(postgres: PostgresForTests) -> None:
    with postgres.new_store() as url:
        first = (await rows(url), await store_id(url))
        async with desk(url) as at:
            assert await at.create(owner="general") == "1"
        assert await rows(url) != first[0]
    with postgres.new_store() as again:
        assert again != url
        assert await rows(again) == first[0]
        assert await store_id(again) != first[1]
        async with desk(again) as at:
            assert await at.create(owner="general") == "1"
            await at.must_hold_together()


async def test_a_database_whose_schema_was_changed_is_not_used_again(
    postgres: PostgresForTests,
) -> None:
    with postgres.new_store() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("ALTER TABLE remit.event DISABLE TRIGGER event_is_never_changed")
        await connection.close()
    with postgres.new_store() as again:
        connection = await asyncpg.connect(again)
        found = await connection.fetchval(
            "SELECT tgenabled FROM pg_trigger WHERE tgname = 'event_is_never_changed'"
        )
        await connection.close()
    assert found == b"O"
