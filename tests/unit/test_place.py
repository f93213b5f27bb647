"""The place of a PostgreSQL database: the same for every spelling of its URL."""

from pathlib import Path

import pytest

from remit.adapters.stores.postgres.rollback_check import place_of


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:secret@db.example.org/remit",
        "postgres://db.example.org/remit",
        "postgresql://DB.example.org:5432/remit",
        "postgresql:///remit?host=db.example.org",
        "postgresql:///remit?host=db.example.org&port=5432",
        "postgresql://db.example.org?dbname=remit",
    ],
)
def test_spellings_of_one_server_are_one_place(url: str) -> None:
    assert place_of(url) == "postgresql://db.example.org/remit"


@pytest.mark.parametrize("host", ["{0}", "{0}/", "{0}//", "{0}/./", "{0}/sub/.."])
def test_spellings_of_one_socket_are_one_place(host: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert (
        place_of(f"postgresql://postgres@/t1?host={host.format(tmp_path)}")
        == f"postgresql://{tmp_path}/t1"
    )


def test_an_encoded_socket_is_the_same_place(tmp_path: Path) -> None:
    encoded = str(tmp_path).replace("/", "%2F")
    assert place_of(f"postgresql://postgres@{encoded}/t1") == f"postgresql://{tmp_path}/t1"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db.example.org:5433/remit",
        "postgresql:///remit?host=db.example.org&port=5433",
        "postgresql://db.example.org/other",
        "postgresql://other.example.org/remit",
    ],
)
def test_other_servers_ports_and_databases_are_other_places(url: str) -> None:
    assert place_of(url) != "postgresql://db.example.org/remit"


def test_what_a_url_leaves_out_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGHOST", str(tmp_path))
    monkeypatch.setenv("PGDATABASE", "remit")
    assert (
        place_of("postgresql:///remit")
        == place_of("postgresql://")
        == f"postgresql://{tmp_path}/remit"
    )
    assert place_of("postgresql:///remit?user=ann") == f"postgresql://{tmp_path}/remit"
    monkeypatch.setenv("PGPORT", "5433")
    assert place_of("postgresql://db.example.org/remit") == "postgresql://db.example.org:5433/remit"
    assert place_of("postgresql://db.example.org:5432/remit") == "postgresql://db.example.org/remit"
    assert place_of("postgresql:///remit") == f"postgresql://{tmp_path}:5433/remit"


def test_several_hosts_keep_their_order() -> None:
    assert place_of("postgresql://a:5432,b:5433/remit") == "postgresql://a,b:5433/remit"
