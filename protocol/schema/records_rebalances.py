"""Keys and values of `__gregor_rebalances`, the history of rebalances; Apache Kafka has no such topic.

Each begins with an int16, its version, and the fields of that version follow. New fields are to be tagged, so that
older brokers and commands can read newer records.
"""

from gregor.protocol.codec.model import Field, Message

REBALANCE_KEY = Message(
    "RebalanceKey",
    versions="0",
    fields=[
        Field("group", "string", help="Group."),
        Field("slot", "int16", help="Generation or group epoch, modulo the number of rebalances that are kept."),
    ],
)

_MEMBER = [
    Field("member_id", "string", help="Member id, or empty."),
    Field("group_instance_id", "string", nullable="0+", default=None, help="Name of a static member, or null."),
    Field("client_id", "string", help="Client id of the member, or empty."),
    Field("client_host", "string", help="Address it connects from, or empty."),
]

REBALANCE_VALUE = Message(
    "RebalanceValue",
    versions="0",
    flexible="0+",
    fields=[
        Field("group_type", "string", help='"classic" or "consumer".'),
        Field("epoch", "int32", help="Generation of a classic group, epoch of a group of the consumer protocol."),
        Field("outcome", "string", help="How the rebalance ended."),
        Field("protocol_type", "string", help='Protocol type of the members, such as "consumer", or empty.'),
        Field("protocol", "string", nullable="0+", help="The assignor, or null."),
        Field("coordinator_id", "int32", help="Broker id of the group's coordinator."),
        Field("began_ms", "int64", help="Start of the rebalance, in milliseconds since 1970."),
        Field("joined_ms", "int64", help="When the wait for the members ended, -1 if it did not."),
        Field("ended_ms", "int64", help="When all members could have their assignments, or the rebalance ended."),
        Field("not_recorded", "int32", help="Rebalances before this one that were not recorded: there were too many."),
        Field(
            "causes",
            "[]Cause",
            help="Causes, the first of which began the rebalance.",
            fields=[
                Field("trigger", "string", help="Kind of the cause."),
                Field("at_ms", "int64", help="Time, in milliseconds since 1970."),
                *_MEMBER,
                Field("reason", "string", nullable="0+", default=None, help="Reason that the client gave, or null."),
                Field("detail", "string", help="What changed, or empty."),
            ],
        ),
        Field("causes_count", "int32", help="Number of all causes, those included for which there was no room."),
        Field(
            "members",
            "[]Member",
            help="The members that were waited for longest.",
            fields=[
                *_MEMBER,
                Field("waited_ms", "int64", help="Milliseconds until the member joined or was removed."),
                Field("joined", "bool", help="Whether the member joined."),
                Field("partitions", "int32", help="Partitions in its new assignment, -1 when unknown."),
            ],
        ),
        Field("members_count", "int32", help="Number of members of the new generation or epoch."),
        Field("partitions", "int32", help="Partitions that are assigned, -1 when unknown."),
        Field("moved", "int32", help="Partitions with another owner; members with another assignment, if unknown."),
        Field("added", "int32", help="Partitions that have an owner and had none."),
        Field("removed", "int32", help="Partitions that had an owner and have none."),
        Field(
            "moves",
            "[]Move",
            help="Partitions whose owner changed.",
            fields=[
                Field("topic", "string", help="Topic name."),
                Field("from_member", "string", nullable="0+", help="Instance id or member id before, or null."),
                Field("to_member", "string", nullable="0+", help="Instance id or member id after, or null."),
                Field("partitions", "[]int32", help="Partition numbers."),
            ],
        ),
        Field("without_owner", "int32", help="Partitions that had no owner for a time."),
        Field("without_owner_ms", "int64", help="The longest such time, in milliseconds; -1 when unknown."),
    ],
)
