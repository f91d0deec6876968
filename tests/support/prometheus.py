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
from tests.support.processes import clean_environment

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

    def __init__(self, folder: Path, targets: Sequence[Target], more: str = "") -> None:
        """`more`: further lines of the scrape configuration, indented by four spaces."""
        self._folder = folder
        self._port = free_port()
        static = json.dumps([{"targets": [one.address], "labels": dict(one.labels)} for one in targets])  # it is YAML
        self._config = (
            f"scrape_configs:\n  - job_name: gregor\n    scrape_interval: 1s\n    static_configs: {static}\n{more}"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Prometheus:
        self._folder.mkdir(parents=True)
        config = self._folder / "prometheus.yml"
        config.write_text(self._config)
        with open(self._folder / "prometheus.out", "wb") as output:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                cwd=self._folder,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def until_ready(self) -> None:
        """Wait until it answers queries."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._process is not None and self._process.poll() is None, self.log()
            try:
                self.query("vector(1)")
                return
            except (urllib.error.URLError, OSError):
                assert time.monotonic() < deadline, self.log()
                time.sleep(0.05)

    def log(self) -> str:
        return (self._folder / "prometheus.out").read_text(errors="replace")

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
