"""`gregor security init`: a folder with an authority, certificates, users, and settings of a broker and its clients."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import click

from gregor.broker.cli.command import run
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.security_files import BROKER_USER, broker_settings, client_files

ADMIN = "admin"
INSTALL = "pip install 'gregor[security]'"
_PASSWORD_BYTES = 24

EPILOG = """\b
Examples:
  gregor security init secrets --host kafka1.example --user anna --user spark
  gregor start secrets/broker.properties
  gregor topics --bootstrap-server kafka1.example:9093 --command-config secrets/admin/client.properties --list
"""


@click.group("security", epilog=EPILOG)
def security() -> None:
    """Prepare TLS, users and access control of a broker."""


@security.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Name or address of the broker. [localhost]")
@click.option("--user", "users", multiple=True, metavar="NAME", help="A user beside the super user 'admin'.")
@click.option("--port", default=9093, show_default=True, help="Port of the listener.")
def init(folder: Path, hosts: tuple[str, ...], users: tuple[str, ...], port: int) -> None:
    """Make an authority, certificates, passwords and settings in a new FOLDER.

    All files are readable by this user only. Copy to a client its own folder and ca.pem, nothing else.
    """
    names = list(dict.fromkeys([ADMIN, *users]))
    for name in names:
        if name == BROKER_USER or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise CommandError(
                f"--user {name}: give a name of letters, digits, '.', '-' and '_', but not '{BROKER_USER}'."
            )
    try:
        from gregor.broker.cli.authority import Authority
    except ModuleNotFoundError:
        raise CommandError(f"certificates need the package cryptography; install it with: {INSTALL}") from None
    found = hosts or ("localhost", "127.0.0.1", "::1")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CommandError(f"{folder} is not empty; name a new folder, as keys in use must not be replaced.")
        passwords = {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in (BROKER_USER, *names)}
        authority = Authority("gregor CA")
        _write(folder / "ca.pem", authority.certificate_pem)
        _write(folder / "ca.key", authority.key_pem)
        _write(folder / "broker.pem", authority.issue(found[0], found))
        home = folder.absolute()
        encoder_secret = secrets.token_urlsafe(_PASSWORD_BYTES)
        settings = broker_settings(home, found[0], port, passwords, ADMIN, encoder_secret)
        _write(folder / "broker.properties", settings)
        for name in names:
            (folder / name).mkdir(mode=0o700)
            _write(folder / name / "client.pem", authority.issue(name))
            for file_name, text in client_files(home, found[0], port, name, passwords[name]).items():
                _write(folder / name / file_name, text)
    except OSError as error:
        raise CommandError(f"{error.filename or folder} cannot be written: {error.strerror}.") from None
    print(f"{folder} has an authority, a broker's settings, and the users {', '.join(names)}.")
    print(f"Start the broker with `gregor start {folder}/broker.properties`.")
    print("Keep ca.key apart from the broker: its owner can make certificates that all of them trust.")


def _write(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(security, arguments)
