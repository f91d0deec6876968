"""Every message as a class: `from gregor.protocol.messages import FetchRequest`.

A class serves all versions that Apache Kafka 3.9 and 4.3 know; the version is an argument of `decode` and
`encode`. Structs are attributes of the message's class: `FetchRequest.FetchTopic`. The types are in `messages.pyi`,
which `python -m gregor.protocol.codec.stubs` writes. An import of this module loads no schema: a class is made on first
use.

- `Cls.decode(buffer, version, position=0) -> (message, end position)` raises MalformedMessage and nothing else. Bytes
  after the message are not read; tagged fields that the schema does not know are dropped.
- `message.encode(version) -> bytes`, `message.encode_into(out, version, splices)` raise UnsupportedField.
- `Cls.decoders[version](buffer, position)`, `Cls.encoders[version](message, out, splices)`: the same with one call
  less, for the server.
- `Cls.decode_in_steps`, `message.encode_in_steps(out, version)`: the same as generators that yield None about every
  0.2 ms, for messages of thousands of elements; without splices. After an error `out` contains a part of the message.
- A `records` field is a view of the input after decoding. It is encoded from bytes-like values, None, or an object with
  `size_bytes`, of which only the length is written: (length of `out` there, object) is appended to `splices`, and the
  sender inserts the object's bytes at that position.
- Cls.API_KEY (-1 for headers and records), MIN_VERSION, MAX_VERSION, FLEXIBLE_FROM, HAS_ARRAYS. All derive from
  ApiMessage.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# API key -> schema module without its number. The classes are named after it: "produce" -> ProduceRequest and
# ProduceResponse.
APIS = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    4: "leader_and_isr",
    5: "stop_replica",
    6: "update_metadata",
    7: "controlled_shutdown",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    17: "sasl_handshake",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    27: "write_txn_markers",
    28: "txn_offset_commit",
    29: "describe_acls",
    30: "create_acls",
    31: "delete_acls",
    32: "describe_configs",
    33: "alter_configs",
    34: "alter_replica_log_dirs",
    35: "describe_log_dirs",
    36: "sasl_authenticate",
    37: "create_partitions",
    38: "create_delegation_token",
    39: "renew_delegation_token",
    40: "expire_delegation_token",
    41: "describe_delegation_token",
    42: "delete_groups",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    47: "offset_delete",
    48: "describe_client_quotas",
    49: "alter_client_quotas",
    50: "describe_user_scram_credentials",
    51: "alter_user_scram_credentials",
    56: "alter_partition",
    57: "update_features",
    60: "describe_cluster",
    61: "describe_producers",
    65: "describe_transactions",
    66: "list_transactions",
    67: "allocate_producer_ids",
    68: "consumer_group_heartbeat",
    69: "consumer_group_describe",
    71: "get_telemetry_subscriptions",
    72: "push_telemetry",
    74: "list_config_resources",
    75: "describe_topic_partitions",
}
# Messages that are neither request nor response -> schema module.
OTHERS = {
    "RequestHeader": "headers",
    "ResponseHeader": "headers",
    "OffsetCommitKey": "records_group",
    "OffsetCommitValue": "records_group",
    "GroupMetadataKey": "records_group",
    "GroupMetadataValue": "records_group",
    "ConsumerGroupMetadataKey": "records_consumer_group",
    "ConsumerGroupMetadataValue": "records_consumer_group",
    "ConsumerGroupPartitionMetadataKey": "records_consumer_group",
    "ConsumerGroupPartitionMetadataValue": "records_consumer_group",
    "ConsumerGroupMemberMetadataKey": "records_consumer_group",
    "ConsumerGroupMemberMetadataValue": "records_consumer_group",
    "ConsumerGroupTargetAssignmentMetadataKey": "records_consumer_group",
    "ConsumerGroupTargetAssignmentMetadataValue": "records_consumer_group",
    "ConsumerGroupTargetAssignmentMemberKey": "records_consumer_group",
    "ConsumerGroupTargetAssignmentMemberValue": "records_consumer_group",
    "ConsumerGroupCurrentMemberAssignmentKey": "records_consumer_group",
    "ConsumerGroupCurrentMemberAssignmentValue": "records_consumer_group",
    "ConsumerGroupRegularExpressionKey": "records_consumer_group",
    "ConsumerGroupRegularExpressionValue": "records_consumer_group",
    "ConsumerProtocolSubscription": "embedded_consumer",
    "ConsumerProtocolAssignment": "embedded_consumer",
    "TransactionLogKey": "records_transaction",
    "TransactionLogValue": "records_transaction",
    "RebalanceKey": "records_rebalances",
    "RebalanceValue": "records_rebalances",
}

_SCHEMA_OF = dict(OTHERS)
_NAME_OF: dict[int, str] = {}
for _key, _api in APIS.items():
    _NAME_OF[_key] = _name = "".join(word.capitalize() for word in _api.split("_"))
    _SCHEMA_OF[f"{_name}Request"] = _SCHEMA_OF[f"{_name}Response"] = f"k{_key:02}_{_api}"

_requests: dict[int, Any] = {}
_responses: dict[int, Any] = {}
_flexible_from: dict[int, int] = {}


def request_class(api_key: int) -> Any:
    """Return the request class of an API, or None if it has no schema here."""
    class_ = _requests.get(api_key)
    if class_ is None and api_key in _NAME_OF:
        class_ = _requests[api_key] = _message(f"{_NAME_OF[api_key]}Request")
    return class_


def response_class(api_key: int) -> Any:
    """Return the response class of an API, or None if it has no schema here."""
    class_ = _responses.get(api_key)
    if class_ is None and api_key in _NAME_OF:
        class_ = _responses[api_key] = _message(f"{_NAME_OF[api_key]}Response")
    return class_


def request_header_version(api_key: int, version: int) -> int:
    """Return the version of RequestHeader before a request; raise KeyError for an API without a schema."""
    if api_key == 7 and version == 0:
        return 0  # ControlledShutdown of brokers before 0.9
    flexible_from = _flexible_from.get(api_key)
    if flexible_from is None:
        if api_key not in _NAME_OF:
            raise KeyError(api_key)
        flexible_from = _flexible_from[api_key] = request_class(api_key).FLEXIBLE_FROM
    return 2 if version >= flexible_from else 1


def response_header_version(api_key: int, version: int) -> int:
    """Return the version of ResponseHeader before a response; raise KeyError for an API without a schema."""
    # A client whose version of ApiVersions is too new must be able to read the response (KIP-511): it never has tags.
    return 0 if api_key == 18 else max(0, request_header_version(api_key, version) - 1)


def message_names() -> list[str]:
    """Return the names of all message classes."""
    return list(_SCHEMA_OF)


def schema(name: str) -> Any:
    """Return the schema (a `model.Message`) of a message class."""
    module = import_module(f"gregor.protocol.schema.{_SCHEMA_OF[name]}")
    for value in vars(module).values():
        if getattr(value, "name", None) == name:
            return value
    raise LookupError(f"gregor.protocol.schema.{_SCHEMA_OF[name]} does not define {name}")


def _message(name: str) -> Any:
    """Return the class of that name; make it if it does not exist."""
    made = globals().get(name)
    if made is None:
        from gregor.protocol.codec.classes import build_class

        made = globals()[name] = build_class(schema(name))
    return made


def __getattr__(name: str) -> Any:
    if name in _SCHEMA_OF:
        return _message(name)
    if name == "ApiMessage":
        from gregor.protocol.codec.classes import ApiMessage

        return ApiMessage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
