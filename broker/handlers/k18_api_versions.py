"""ApiVersions (key 18), versions 0 to 4: the served APIs, derived from the registered handlers.

A request of an unknown version gets the version-0 form with UNSUPPORTED_VERSION and the versions of this API (KIP-511);
the connection does that, as there is no request to decode.

- 1 throttle time; 3 flexible, client software name and version, features; 4 features may have minimum version 0.
- Features: none are finalised; transaction.version and group.version will come with their functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gregor.broker.net.responses import EncodedResponse
from gregor.broker.registry import handles
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from gregor.broker.context import ApiContext, Call, ServedApi

# KIP-511: legal names of client software.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiKey.API_VERSIONS, 0, 4)
def api_versions(broker: ApiContext, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse | EncodedResponse:
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    table = broker.handlers
    known = _answers.get(call.version)
    if known is None or known[0] is not table or known[1] != len(table):
        answer = EncodedResponse([_served(table).encode(call.version)])
        known = _answers[call.version] = table, len(table), answer
    return known[2]


def _served(table: Mapping[int, ServedApi]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=entry.min_version, max_version=entry.max_version)
            for key, entry in sorted(table.items())
        ]
    )


# By version: the table of handlers, their number, and the response made from it. Each client sends one request, all of
# them at once after the start of a broker, and the response is the same for all.
_answers: dict[int, tuple[Mapping[int, ServedApi], int, EncodedResponse]] = {}
