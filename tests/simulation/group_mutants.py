"""Known mistakes in what concerns consumer groups. See mutants.py."""

from __future__ import annotations

from tests.simulation.edits import Edit, Mutant

GROUP_MUTANTS = (
    # No partition has two owners.
    Mutant(
        "a partition is assigned before its owner has revoked it",
        (Edit("coordinator", "_converge", "partition in own or is_free(topic_id, partition)", "True"),),
    ),
    Mutant(
        "what a member must revoke counts as revoked at once",
        (Edit("coordinator", "_converge", "revoked and _owns_any(owned, revoked)", "False"),),
    ),
    Mutant(
        "a heartbeat confirms a revocation whatever the member still owns",
        (Edit("coordinator", "reconcile", "_owns_any(owned, member.pending_revocation)", "False"),),
    ),
    Mutant(
        "partitions that a member has to revoke are not its own after a load",
        (Edit("coordinator", "_assign", "self._own(assignment.pending_revocation, member.member_id)", "None"),),
    ),
    # Every partition finds an owner.
    Mutant(
        "the sessions of consumers do not end",
        (Edit("coordinator", "watch", "self._timers.schedule(member.session_key, ANY_1, ANY_2)", "None"),),
    ),
    Mutant(
        "sessions are not watched after a load",
        (Edit("coordinator", "on_loaded", "self.sessions.watch(group, member)", "None"),),
    ),
    Mutant(
        "a member does not wait for partitions that others have not released",
        (Edit("coordinator", "_converge", "waits = waits or ANY", "pass"),),
    ),
    Mutant(
        "partitions of a member that left stay its own",
        (Edit("coordinator", "_disown", "del owners[index]", "pass"),),
    ),
    Mutant(
        "a member that leaves begins no group epoch",
        (Edit("coordinator", "fence", "group.epoch + 1", "group.epoch"),),
        seed=25,
    ),
    # Epochs do not fall.
    Mutant(
        "a load forgets the group epoch",
        (Edit("coordinator", "replay_epoch", "self.epoch = value.epoch", "self.epoch = max(self.epoch, 1)"),),
    ),
    Mutant(
        "a coordinator that loads a group begins with its first epoch again",
        (
            Edit(
                "coordinator",
                "on_loaded",
                "self._is_loaded = True",
                "self._is_loaded = True\n"
                "for slot in self._groups.values():\n"
                "    if slot.consumer is not None: slot.consumer.epoch = slot.consumer.target_epoch = 1",
            ),
        ),
    ),
    Mutant(
        "a load forgets the epochs of members",
        (Edit("coordinator", "assignment_from_record", "epoch = value.member_epoch", "epoch = 1"),),
    ),
    # Committed offsets survive.
    Mutant(
        "a commit of an older member epoch counts for every partition",
        (Edit("coordinator", "commit_error", "_owned_since(ANY_1, ANY_2, ANY_3, ANY_4)", "True"),),
    ),
    Mutant(
        "a member that was removed commits offsets",
        (Edit("coordinator", "commit_error", "return ErrorCode.UNKNOWN_MEMBER_ID", "return ErrorCode.NONE"),),
        seed=203,
    ),
    Mutant(
        "the first commit for a partition counts, not the last",
        (
            Edit(
                "coordinator",
                "_replay_offset",
                "group.offsets.setdefault(ANY_1, {})[ANY_2] = committed",
                "group.offsets.setdefault(ANY_1, {}).setdefault(ANY_2, committed)",
            ),
        ),
    ),
    # Members of both protocols.
    Mutant(
        "classic members of a group that is converted own nothing",
        (Edit("coordinator", "_upgraded", "targets[ANY_1] = _assigned(ANY_2, ANY_3)", "targets[ANY_1] = {}"),),
        seed=73,
    ),
    Mutant(
        "a group that is classic again has no rebalance",
        (
            Edit(
                "coordinator",
                "_begin_classic",
                "return self._rebalances.begin(ANY_1, ANY_2, ANY_3, ANY_4)",
                "return Result()",
            ),
        ),
    ),
    Mutant(
        "the parked joins of a group that is converted are not answered",
        (Edit("coordinator", "_replay_metadata", "self.soft.close(ANY_1, ANY_2)", "self.soft.memberships.clear()"),),
        seed=73,
    ),
)
