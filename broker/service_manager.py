"""Messages to systemd about the state of a service, for units of Type=notify (sd_notify(3)).

A message is one datagram of lines KEY=VALUE to the socket that NOTIFY_SOCKET names: a path, or @NAME in the abstract
namespace of Linux. A message never delays or ends the broker: one that cannot be sent is logged.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from gregor.broker.log import logger

VARIABLE = "NOTIFY_SOCKET"


class ServiceManager:
    """The service manager that has started this process; without one, messages go nowhere."""

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        """Remove NOTIFY_SOCKET from the environment: systemd accepts messages of the main process only
        (NotifyAccess=main), so its children must not inherit the variable."""
        self._address = (os.environ if environ is None else environ).pop(VARIABLE, "")
        if self._address and self._address[0] not in "/@":
            logger.warning(
                "%s=%s: must be an absolute path or begin with @; systemd is not informed", VARIABLE, self._address
            )
            self._address = ""

    def ready(self, status: str) -> None:
        """Report that the start is over; `systemctl status` shows the status."""
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={_line(status)}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto(message.encode(), address)
        except OSError as error:
            logger.warning("%s=%s: systemd is not informed: %s", VARIABLE, self._address, error.strerror or error)


def _line(status: str) -> str:
    """Return the text without line ends, which separate the keys of a message."""
    return " ".join(status.split())
