"""`gregor security init`: a folder with an authority, certificates, users, and settings of a broker and its clients."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gregor.broker.cli.command import run
from gregor.broker.cli.errors import CommandError
from gregor.broker.cli.security_files import BROKER_USER, broker_settings, client_files

if TYPE_CHECKING:
    from gregor.broker.cli.authority import Authority

ADMIN = "admin"
INSTALL = "pip install 'gregor[security]'"
MAX_COMMON_NAME = 64
"""Characters of a common name in a certificate (RFC 5280)."""
_PASSWORD_BYTES = 24
_FILES = ("ca.pem", "ca.key", "broker.pem", "broker.properties")
"""The files beside the folders of users."""
_USER = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_COMMON_NAME}}}")
_HOST = re.compile(r"(?:\*\.)?[a-zA-Z0-9_-]{1,63}(?:\.[a-zA-Z0-9_-]{1,63})*")
_MAX_HOST = 253

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
@click.option("--port", default=9093, show_default=True, type=click.IntRange(1, 65535), help="Port of the listener.")
def init(folder: Path, hosts: tuple[str, ...], users: tuple[str, ...], port: int) -> None:
    """Make an authority, certificates, passwords and settings in a new FOLDER.

    All files are readable by this user only. Copy to a client its own folder and ca.pem, nothing else.
    """
    names = list(dict.fromkeys([ADMIN, *users]))
    found = hosts or ("localhost", "127.0.0.1", "::1")
    check_users(names)
    check_hosts(found)
    try:
        from gregor.broker.cli.authority import Authority
    except ModuleNotFoundError:
        raise CommandError(f"certificates need the package cryptography; install it with: {INSTALL}") from None
    files = files_of(folder.absolute(), Authority("gregor CA"), found, names, port)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CommandError(f"{folder} is not empty; name a new folder, as keys in use must not be replaced.")
        for name in names:
            (folder / name).mkdir(mode=0o700)
        for file_name, text in files.items():
            _write(folder / file_name, text)
    except OSError as error:
        raise CommandError(f"{error.filename or folder} cannot be written: {error.strerror}.") from None
    print(f"{folder} has an authority, a broker's settings, and the users {', '.join(names)}.")
    print(f"Start the broker with `gregor start {folder}/broker.properties`.")
    print("Keep ca.key apart from the broker: its owner can make certificates that all of them trust.")


def check_users(names: Sequence[str]) -> None:
    """Raise CommandError for a name that cannot be that of a folder, of a certificate and of a user in JAAS."""
    for name in names:
        if name in (BROKER_USER, *_FILES) or not _USER.fullmatch(name) or not name.strip("."):
            raise CommandError(
                f"--user {name}: give a name of 1 to {MAX_COMMON_NAME} letters, digits, '.', '-' and '_', but not "
                f"{', '.join((BROKER_USER, *_FILES))}."
            )


def check_hosts(hosts: Sequence[str]) -> None:
    """Raise CommandError for a host that is neither an address nor a name. The first one is that of the listener."""
    for host in hosts:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            is_name = _HOST.fullmatch(host) is not None and len(host) <= _MAX_HOST
            if not is_name or (host is hosts[0] and host.startswith("*")):
                raise CommandError(
                    f"--host {host}: give an IP address, or a name of up to {_MAX_HOST} characters whose labels have 1 "
                    "to 63 letters, digits, '-' and '_'; of a name in other letters the form with xn--. Only a second "
                    "host may begin with '*.', for a certificate of many names."
                ) from None


def files_of(home: Path, authority: Authority, hosts: Sequence[str], names: Sequence[str], port: int) -> dict[str, str]:
    """Return the texts of all files by their names in the folder: nothing is written before each of them is made."""
    passwords = {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in (BROKER_USER, *names)}
    encoder_secret = secrets.token_urlsafe(_PASSWORD_BYTES)
    # Clients compare the host with the alternative names of the certificate.
    common_name = hosts[0] if len(hosts[0]) <= MAX_COMMON_NAME else "gregor broker"
    texts = (
        authority.certificate_pem,
        authority.key_pem,
        authority.issue(common_name, hosts),
        broker_settings(home, hosts[0], port, passwords, ADMIN, encoder_secret),
    )
    files = dict(zip(_FILES, texts, strict=True))
    for name in names:
        files[f"{name}/client.pem"] = authority.issue(name)
        of_user = client_files(home, hosts[0], port, name, passwords[name])
        files |= {f"{name}/{file_name}": text for file_name, text in of_user.items()}
    return files


def _write(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def main(arguments: Sequence[str]) -> int:
    """Entry point of the sub-command."""
    return run(security, arguments)
