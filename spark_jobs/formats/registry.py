"""A schema registry, by the REST interface of Confluent's Schema Registry.

The schemas of an id and of a version of a subject never change, so that a process fetches each of them once.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from gregor.spark_jobs.errors import JobError

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_REFERENCES = 1000
SERIALIZED = "serialized"
"""The `format` in which a registry returns a Protobuf schema as a FileDescriptorProto in base64."""


@dataclass(frozen=True)
class Reference:
    """A schema that another one imports, by the name that it has there."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as it is registered."""

    text: str
    kind: str
    """AVRO, PROTOBUF or JSON."""
    references: tuple[Reference, ...]


def check_url(url: str) -> SplitResult:
    """Return the parts of the URL of a registry; raise JobError if it is none."""
    parts = urlsplit(url)
    try:
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable:
        raise JobError(f"--schema-registry {without_password(url)!r} is no URL; give one like http://registry:8081")
    return parts


def without_password(url: str) -> str:
    """Return a URL without user and password, for messages: also one that is none because its password has a / or @."""
    return re.sub(r"^(\w+://)?.*@", r"\1", url)


@functools.cache
def schema_by_id(url: str, schema_id: int, form: str = "") -> RegisteredSchema:
    """Return the schema of an id; raise JobError if there is none, or the registry does not answer."""
    return _schema(url, f"/schemas/ids/{schema_id}", form, f"the schema {schema_id}")


def newest_schema(url: str, subject: str, form: str = "") -> RegisteredSchema:
    """Return the newest schema of a subject."""
    return _schema(url, f"/subjects/{quote(subject, safe='')}/versions/latest", form, f"the subject {subject}")


@functools.cache
def referenced_schema(url: str, reference: Reference, form: str = "") -> RegisteredSchema:
    """Return the schema that a reference names."""
    path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
    return _schema(url, path, form, f"version {reference.version} of the subject {reference.subject}")


def with_references(url: str, schema: RegisteredSchema, form: str = "") -> list[tuple[str, RegisteredSchema]]:
    """Return the schemas that a schema needs, by their names in it, each before the ones that need it."""
    found: dict[str, RegisteredSchema] = {}
    under_way: set[str] = set()

    def add(needing: RegisteredSchema) -> None:
        for reference in needing.references:
            if reference.name in found or reference.name in under_way:
                continue
            if len(under_way) + len(found) >= MAX_REFERENCES:
                raise JobError(f"a schema of {without_password(url)} has more than {MAX_REFERENCES} references")
            under_way.add(reference.name)
            needed = referenced_schema(url, reference, form)
            add(needed)
            found[reference.name] = needed

    add(schema)
    return list(found.items())


def _schema(url: str, path: str, form: str, what: str) -> RegisteredSchema:
    answer = _get(url, path + (f"?format={form}" if form else ""), what)
    try:
        references = [Reference(one["name"], one["subject"], one["version"]) for one in answer.get("references") or ()]
        return RegisteredSchema(str(answer["schema"]), answer.get("schemaType") or "AVRO", tuple(references))
    except (KeyError, TypeError, AttributeError) as error:
        raise JobError(
            f"the answer of the schema registry {without_password(url)} for {what} has no schema; "
            "check that the URL is that of the registry"
        ) from error


def _get(url: str, path: str, what: str) -> Any:
    """Return the JSON of a resource."""
    parts = check_url(url)
    shown = without_password(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    assert parts.hostname is not None
    connection = connect(parts.hostname, parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path.rstrip("/") + path, headers=_headers(parts))
        response = connection.getresponse()
        body = response.read(MAX_ANSWER_BYTES)
    except (OSError, HTTPException) as error:
        raise JobError(
            f"the schema registry {shown} does not answer: {error or type(error).__name__}; check --schema-registry, "
            "also from the machines of the executors"
        ) from error
    finally:
        connection.close()
    if response.status == 404:
        raise JobError(
            f"the schema registry {shown} does not have {what}: {_message(body)}; check that it is the registry of "
            "the producers"
        )
    if response.status != 200:
        raise JobError(
            f"the schema registry {shown} refuses {what}: HTTP {response.status} {_message(body)}; "
            "user and password stand in the URL: http://user:password@registry:8081"
        )
    try:
        return json.loads(body)
    except ValueError as error:
        raise JobError(f"the answer of the schema registry {shown} for {what} is no JSON; check the URL") from error


def _headers(parts: SplitResult) -> dict[str, str]:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return headers


def _message(body: bytes) -> str:
    """Return the text of an error of the registry."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace").strip() or "no reason given"
