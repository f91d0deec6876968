"""The client of a schema registry."""

from __future__ import annotations

import socket

import pytest

from gregor.spark_jobs.errors import JobError
from gregor.spark_jobs.formats.registry import newest_schema, schema_by_id, with_references, without_password
from tests.spark_jobs.formats.fake_registry import fake_registry


def test_a_schema_is_fetched_once_by_its_id() -> None:
    with fake_registry() as registry:
        number = registry.register("orders-value", '"string"')
        for _ in range(3):
            assert schema_by_id(registry.url, number).text == '"string"'
        assert registry.requests == {f"/schemas/ids/{number}": 1}


def test_the_newest_schema_of_a_subject_has_the_ones_that_it_needs_before_it() -> None:
    with fake_registry() as registry:
        registry.register("a/b", '"int"')
        registry.register("money", '"long"', references=[("A", "a/b", 1)])
        registry.register("orders-value", '"bytes"')
        registry.register("orders-value", '"string"', references=[("Money", "money", 1), ("A", "a/b", 1)])
        found = newest_schema(registry.url, "orders-value")
        assert found.text == '"string"'
        needed = with_references(registry.url, found)
        assert [(name, one.text) for name, one in needed] == [("A", '"int"'), ("Money", '"long"')]


def test_user_and_password_of_the_url_are_sent_and_never_shown() -> None:
    with fake_registry() as registry:
        registry.register("s", '"int"')
        url = registry.url.replace("//", "//user:se%40cret@")
        assert newest_schema(url, "s").text == '"int"'
        assert registry.authorization == ["Basic dXNlcjpzZUBjcmV0"]
        registry.status = 401
        with pytest.raises(JobError, match="refuses the subject s: HTTP 401 as the test demands") as raised:
            newest_schema(url, "s")
        assert "cret" not in str(raised.value)


@pytest.mark.parametrize("password", ["", "se%40cret", "s@cret", "s@/cr@t", "s/cret", "s//cret", "s?cret#"])
def test_no_part_of_a_password_is_shown(password: str) -> None:
    assert without_password(f"http://user:{password}@registry:8081/path") == "http://registry:8081/path"
    assert without_password(f"user:{password}@registry:8081") == "registry:8081"


def test_an_url_without_a_password_is_shown_as_it_is() -> None:
    assert without_password("http://registry:8081/path") == "http://registry:8081/path"


def test_an_unknown_id_and_an_unreachable_registry_are_errors_of_the_job() -> None:
    unknown = "does not have the schema 7: Schema not found; check that it is the registry"
    with fake_registry() as registry, pytest.raises(JobError, match=unknown):
        schema_by_id(registry.url, 7)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(JobError, match=f"the schema registry http://127.0.0.1:{port} does not answer: .*refused"):
        schema_by_id(f"http://127.0.0.1:{port}", 1)


@pytest.mark.parametrize("url", ["registry:8081", "ftp://registry", "http://", "http://registry:port"])
def test_an_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(JobError, match="is no URL; give one like"):
        newest_schema(url, "s")
