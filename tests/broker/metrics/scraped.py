"""A server with a listener for metrics, and its page as series."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path

from gregor.broker.server import Server
from gregor.config.broker import BrokerConfig

Series = dict[str, float]


def server_with_metrics(folder: Path, **settings: str) -> Server:
    """Make a server whose keys have underscores here."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return Server(
        BrokerConfig(
            {
                "log.dirs": str(folder),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "gregor.metrics.listener": "127.0.0.1:0",
                **given,
            }
        )
    )


def urls_of(server: Server) -> list[str]:
    assert server.metrics is not None
    return server.metrics.urls


def fetched(url: str, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Return status, content type and text."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=60) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


async def get(url: str, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    return await asyncio.to_thread(fetched, url, headers)


async def series_of(url: str) -> Series:
    """Scrape `url` and return the values by name with labels."""
    status, _, text = await get(f"{url}/metrics")
    assert status == 200, text
    return parsed(text)


def parsed(text: str) -> Series:
    found: Series = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name not in found, f"{name} occurs twice"
            found[name] = float(value)
    return found
