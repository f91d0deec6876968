"""A schema registry with the paths of Confluent's REST interface, on a port of the system."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class FakeRegistry:
    """Schemas by subject; an id is one more than the number of schemas before."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: Counter[str] = Counter()
        self.authorization: list[str | None] = []
        self.status = 200
        self.ids: dict[str, int] = {}
        """Ids that a test keeps by subject."""
        self._schemas: list[tuple[str, Any]] = []

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: Sequence[tuple[str, str, int]] = ()
    ) -> int:
        """Register a schema; return its id. References are name, subject and version."""
        found: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":  # the default, which the answers leave out
            found["schemaType"] = kind
        if references:
            found["references"] = [dict(zip(("name", "subject", "version"), one, strict=True)) for one in references]
        self._schemas.append((subject, found))
        return len(self._schemas)

    def register_file(self, subject: str, file: Any, references: Sequence[tuple[str, str, int]] = ()) -> int:
        """Register a FileDescriptorProto, of which only the serialized form is returned."""
        return self.register(subject, base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF", references)

    def answer(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        """Return the status and the JSON of a request."""
        if self.status != 200:
            return self.status, {"error_code": self.status * 100 + 1, "message": "as the test demands"}
        parts = [unquote(part) for part in path.strip("/").split("/")]
        found: Any = None
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            found = self._schemas[number - 1][1] if 0 < number <= len(self._schemas) else None
        elif parts[0] == "subjects" and parts[2] == "versions":
            versions = [schema for subject, schema in self._schemas if subject == parts[1]]
            at = len(versions) if parts[3] == "latest" else int(parts[3])
            found = versions[at - 1] if 0 < at <= len(versions) else None
        if found is None:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if found.get("schemaType") == "PROTOBUF" and query.get("format") != ["serialized"]:
            return 200, found | {"schema": 'syntax = "proto3";'}
        return 200, found


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """Yield a registry that answers until the end of the block."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            registry.requests[parts.path] += 1
            registry.authorization.append(self.headers["Authorization"])
            status, answer = registry.answer(parts.path, parse_qs(parts.query))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
