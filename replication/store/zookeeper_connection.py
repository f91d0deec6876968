"""Additions to kazoo: connections on one thread, and with TLS without keys in files; the request that reads many nodes;
Kafka's access control lists of new nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from kazoo.exceptions import EXCEPTIONS, NoNodeError, WriterNotClosedException
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import GetData, MultiHeader, int_struct, stat_struct
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

_BOTH_WAYS = 2  # socket.SHUT_RDWR
_OPEN_PATH = "/consumers"
"""Written by consumers of before Kafka 0.9, each for itself."""
_SECRET_PATHS = ("/config/users", "/config/brokers", "/delegation_token/tokens")

Found = tuple[bytes, Any] | Exception | None
"""Data and kazoo's ZnodeStat; None of a node that does not exist."""

_HEADER = MultiHeader(GetData.type, False, -1).serialize()
_END = MultiHeader(-1, True, -1).serialize()
_FAILED = -1

_log = logging.getLogger(__name__)


def node_acl(path: str, *, set_acl: bool) -> list[ACL]:
    """Return the access control list of a new node (Kafka's ZkData): its creator may do all, everyone may read nodes
    without secrets."""
    if not set_acl or path == _OPEN_PATH:
        return list(OPEN_ACL_UNSAFE)
    return list(CREATOR_ALL_ACL if path.startswith(_SECRET_PATHS) else CREATOR_ALL_ACL + READ_ACL_UNSAFE)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Works without kazoo's two worker threads: their calls are made on the thread of the connection, and are only
    messages to the event loop."""

    def __init__(self, failed: Callable[[LoopHandler], None], tls_context: Callable[[], Any] | None = None) -> None:
        """`failed` is called on the connection's thread when it ends by an error that kazoo does not expect.

        `tls_context` returns the ssl.SSLContext of a new connection. kazoo would need keys in files.
        """
        super().__init__()
        self._failed = failed
        self._tls_context = tls_context
        self._socket: Any = None
        self.trouble = ""
        """The reason why the last connection could not be opened."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception:
                _log.exception("The thread of the ZooKeeper client failed")
                self._failed(self)

        return super().spawn(run)

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        try:
            self._socket = opened = super().create_connection(*args, **kwargs)
            if self._tls_context is not None:
                try:
                    self._socket = self._tls_context().wrap_socket(opened, server_hostname=kwargs["hostname"])
                except BaseException:
                    opened.close()
                    raise
        except OSError as error:
            self.trouble = str(error)
            raise
        self.trouble = ""
        return self._socket

    def select(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for sockets. One whose TLS layer has decrypted more than was read is ready at once: the kernel has
        nothing left to report, and kazoo would receive its next response with the next ping."""
        if self._tls_context is not None and self._socket in args[0] and self._socket.pending():
            ready, writable, failed = super().select(*args[:3], 0)
            return ready if self._socket in ready else [*ready, self._socket], writable, failed
        return super().select(*args, **kwargs)

    def shut_connection(self) -> None:
        """End the conversation with a server that does not answer."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(_BOTH_WAYS)


class MultiRead:
    """ZooKeeper's request that reads many nodes at once (`multiRead`, since 3.6), which kazoo does not have.

    The paths are absolute, with the chroot. Its format is that of a transaction of getData operations; but each has its
    own result, and it sets no watches (ZooKeeper's MultiOperationRecord, MultiResponse). A server before 3.6 ends the
    session that sends it.
    """

    type = 22

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = list(paths)

    def serialize(self) -> bytearray:
        out = bytearray()
        for path in self.paths:
            out += _HEADER
            out += GetData(path, None).serialize()
        out += _END
        return out

    def deserialize(self, data: Any, position: int) -> list[Found]:
        """Return the results in the order of the paths."""
        found: list[Found] = []
        header, position = MultiHeader.deserialize(data, position)
        while not header.done:
            if header.type == _FAILED:
                code = int_struct.unpack_from(data, position)[0]
                position += int_struct.size
                found.append(None if code == NoNodeError.code else EXCEPTIONS[code]())
            else:
                content, stat = GetData.deserialize(data, position)
                # The data behind its length, which is -1 for none, and the stat.
                position += int_struct.size + len(content or b"") + stat_struct.size
                found.append((content or b"", stat))
            header, position = MultiHeader.deserialize(data, position)
        return found


def multi_read(client: Any, paths: Iterable[str]) -> Any:
    """Send the request by a KazooClient; returns kazoo's asynchronous result, a list of Found.

    kazoo has no public way to send a request of another type than its own: `_call` is the one by which its methods and
    transactions send theirs. An upper bound of kazoo's version in pyproject.toml keeps it as it is.
    """
    result = client.handler.async_result()
    client._call(MultiRead(client.chroot + path for path in paths), result)
    return result


def end_client(client: Any) -> bool:
    """Stop the client, on a thread: it may last as long as an attempt to connect. Return whether there was a connection
    to send the request on, and kazoo's own thread has ended after it."""
    connected: bool = client.connected
    if not connected:
        # A process may have accepted the connection and not answer: kazoo would wait for the whole session timeout.
        client.handler.shut_connection()
    try:
        client.stop()
    except WriterNotClosedException:
        connected = False
    client.close()
    return connected
