"""SaslAuthenticate (key 36), versions 0 to 2: a token of a SASL exchange.

- 1 the lifetime of the session (KIP-368); 2 flexible.
- A refused client is answered after connection.failed.authentication.delay.ms, and its connection ends. The text names
  neither whether the user exists nor what was wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from gregor.broker.context import Call


@handles(ApiKey.SASL_AUTHENTICATE, 0, 2)
def sasl_authenticate(broker: object, request: SaslAuthenticateRequest, call: Call) -> Any:
    session = call.connection.session
    if session is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    return session.authenticate(request, call.version)
