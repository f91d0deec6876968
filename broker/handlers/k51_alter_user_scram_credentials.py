"""AlterUserScramCredentials (key 51), versions 0 to 0: set and remove credentials of users (KIP-554).

The client hashes the passwords; the broker derives the keys that it stores. All changes of a user are made, or none.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from gregor.broker.part_of import scram_credentials
from gregor.broker.registry import handles, on_part
from gregor.protocol.api_keys import ApiKey
from gregor.protocol.errors import KafkaError
from gregor.protocol.messages import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from gregor.replication.entities.credentials import Removal, Upsertion
from gregor.replication.store.time_limit import TimeLimit

if TYPE_CHECKING:
    from gregor.broker.context import Call
    from gregor.replication.entities.credentials import ScramCredentials

_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, changes=True)
@on_part(scram_credentials)
async def alter_user_scram_credentials(
    credentials: ScramCredentials, request: AlterUserScramCredentialsRequest, call: Call
) -> AlterUserScramCredentialsResponse:
    removals, upsertions = defaultdict(list), defaultdict(list)
    for removal in request.deletions:
        removals[removal.name].append(Removal(removal.name, removal.mechanism))
    for one in request.upsertions:
        upsertions[one.name].append(
            Upsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        )
    limit, results = TimeLimit(), []
    for user in dict.fromkeys((*removals, *upsertions)):
        result = _Result(user=user, error_message=None)
        try:
            await limit.within(partial(credentials.alter, user, removals[user], upsertions[user]))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)
