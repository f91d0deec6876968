"""A TCP way to a server that can be shut and opened again: for one client's lost connection."""

from __future__ import annotations

import contextlib
import socket
import threading


class Gate:
    """Passes connections on to a port of this machine. A context manager."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = True
        self._wires: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        """Connections break, and new ones break at once."""
        self._open = False
        for wire in self._wires:
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        self._open = True

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self._open:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()
                    continue
                self._wires = [wire for wire in self._wires if wire.fileno() >= 0] + [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for wire in (source, sink):
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
        source.close()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
