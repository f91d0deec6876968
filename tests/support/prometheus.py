"""A Prometheus server in a process of its own, and promtool, both of Debian's package, for tests."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.ports import free_port
from tests.support.programs import RunningProgram

START_TIMEOUT_S = 60.0


class Target(NamedTuple):
    """`address` as host:port, and the labels that the configuration gives all series of it."""

    address: str
    labels: Mapping[str, str]


class Series(NamedTuple):
    labels: Mapping[str, str]
    value: float


class Prometheus:
    """Scrapes each second, with its data in `folder`. A context manager."""

    def __init__(self, folder: Path, targets: Sequence[Target], more: str = "", rules: str = "") -> None:
        """`more`: further lines of the scrape configuration, indented by four spaces; `rules`: a file of rules."""
        self._folder = folder
        self._port = free_port()
        static = json.dumps([{"targets": [one.address], "labels": dict(one.labels)} for one in targets])  # it is YAML
        self._rules = rules
        self._config = (
            "global: {evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
            f"scrape_configs:\n  - job_name: gregor\n    scrape_interval: 1s\n    static_configs: {static}\n{more}"
        )
        self._program = RunningProgram(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            folder,
        )

    def __enter__(self) -> Prometheus:
        self._folder.mkdir(parents=True)
        (self._folder / "prometheus.yml").write_text(self._config)
        (self._folder / "rules.yml").write_text(self._rules)
        self._program.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._program.__exit__(*exception)

    def until_ready(self) -> None:
        """Wait until it answers queries."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            self._program.check()
            try:
                self.query("vector(1)")
                return
            except (urllib.error.URLError, OSError):
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.05)

    def log(self) -> str:
        return self._program.log()

    def query(self, expression: str) -> list[Series]:
        """Evaluate an expression now. Raises AssertionError for one that Prometheus refuses."""
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == 503:
                raise  # not ready yet
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        return [Series(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]


def remarks_of_promtool(page: str) -> str:
    """Return what `promtool check metrics` finds in a page."""
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr
