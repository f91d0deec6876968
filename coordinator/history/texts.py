"""A rebalance in words: for the log, and for `gregor groups --history`."""

from __future__ import annotations

from gregor.protocol.messages import RebalanceValue

LISTED = 3
"""Causes and members that a line names."""


def cause_text(cause: RebalanceValue.Cause) -> str:
    """One cause, with its member and the reason of the client."""
    reason = f"client reason {cause.reason!r}" if cause.reason else ""
    parts = [part for part in (cause.detail, member_text(cause), reason) if part]
    return f"{cause.trigger}: {', '.join(parts)}" if parts else cause.trigger


def member_text(one: RebalanceValue.Cause | RebalanceValue.Member) -> str:
    """A member by its instance id or member id, with client id and host; empty if there is none."""
    name = one.group_instance_id or one.member_id
    if not name:
        return ""
    return f"{name!r} (client {one.client_id!r} at {one.client_host.removeprefix('/')})"


def causes_text(value: RebalanceValue) -> str:
    """The first causes, and how many more there are."""
    shown = [cause_text(cause) for cause in value.causes[:LISTED]]
    more = max(value.causes_count, len(value.causes)) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def line(group_id: str, value: RebalanceValue) -> str:
    """The line of the log."""
    kind = "generation" if value.group_type == "classic" else "epoch"
    head = f"Group {group_id!r}: {kind} {value.epoch} {value.outcome}"
    parts = [
        f"{head} after {value.ended_ms - value.began_ms} ms, members: {value.members_count}",
        causes_text(value),
        _waits(value),
        _partitions(value),
        f"not recorded before it: {value.not_recorded}" if value.not_recorded else "",
    ]
    return "; ".join(part for part in parts if part)


def _waits(value: RebalanceValue) -> str:
    slow = [member for member in value.members if member.waited_ms > 0][:LISTED]
    return "waited for " + ", ".join(f"{_name(one)} {one.waited_ms} ms" for one in slow) if slow else ""


def _name(member: RebalanceValue.Member) -> str:
    return repr(member.group_instance_id or member.member_id)


def _partitions(value: RebalanceValue) -> str:
    if value.partitions < 0:
        return f"members with another assignment: {value.moved}" if value.moved else ""
    changes = {"moved": value.moved, "added": value.added, "removed": value.removed}
    text = f"partitions: {value.partitions}"
    text += "".join(f", {what} {count}" for what, count in changes.items() if count)
    if value.without_owner:
        text += f", without owner {value.without_owner} for up to {value.without_owner_ms} ms"
    return text
