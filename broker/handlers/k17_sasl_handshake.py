"""SaslHandshake (key 17), versions 0 to 1: the choice of a SASL mechanism.

- 0 raw tokens follow, each behind its size (KIP-43); 1 tokens follow in SaslAuthenticate (KIP-152).
- On a listener without SASL, and on an authenticated connection whose session has no end: ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call


@handles(ApiKey.SASL_HANDSHAKE, 0, 1)
def sasl_handshake(broker: object, request: SaslHandshakeRequest, call: Call) -> Any:
    session = call.connection.session
    if session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return session.handshake(request, call.version)
