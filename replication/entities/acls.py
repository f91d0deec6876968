"""The access rules of the cluster: read at start, followed by notices, changed with a comparison of versions.

The nodes and the order of the writes are those of AclAuthorizer of Apache Kafka 3.9, in ZooKeeper and in the store of a
single broker, so brokers of both kinds change and follow the same rules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gregor.protocol.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Pattern,
    PatternType,
    ResourceType,
    Rule,
    code_of,
    principal_problem,
)
from gregor.protocol.errors import ErrorCode, KafkaError
from gregor.replication.entities import acl_nodes
from gregor.replication.store.change_notices import ChangeNotices, changed_with_notice
from gregor.replication.store.metadata_store import (
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    Operation,
    Set,
)
from gregor.replication.store.nodes import NodeFormatError
from gregor.replication.store.time_limit import TimeLimit

_PATTERNS_PER_READ = 100

Edit = Callable[[tuple[Rule, ...]], Iterable[Rule]]

_log = logging.getLogger(__name__)


class AclStore:
    """The rules as this broker knows them, by pattern, and their changes. `spawn` runs a coroutine on the loop."""

    def __init__(
        self,
        store: MetadataStore,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        clock_ms: Callable[[], int],
    ) -> None:
        self.on_changed: list[Callable[[Pattern, Collection[Rule]], None]] = []
        """Called with the rules that a pattern now has, none if its node is gone."""
        self._store = store
        self._spawn = spawn
        self._rules: dict[Pattern, tuple[Rule, ...]] = {}
        self._notices = [
            ChangeNotices(store, acl_nodes.CHANGES[pattern_type], spawn, clock_ms, partial(self._read_changes, decode))
            for pattern_type, decode in (
                (PatternType.LITERAL, acl_nodes.decode_literal_change),
                (PatternType.PREFIXED, acl_nodes.decode_extended_change),
            )
        ]
        store.on_session_expired.append(self._session_expired)

    async def start(self) -> None:
        """Read all rules, and follow their changes from here on. Raises NodeFormatError: without a rule that cannot be
        decoded, more might be allowed than is meant."""
        for path in acl_nodes.PERSISTENT_PATHS:
            with suppress(NodeExists):
                await self._store.create(path, make_parents=True)
        await self._read_all()

    @property
    def rule_count(self) -> int:
        return sum(map(len, self._rules.values()))

    def matching(self, wanted: AclFilter) -> Iterator[tuple[Pattern, list[Rule]]]:
        """Return the rules that a filter matches, those of each pattern together, perhaps none; the rules may change
        meanwhile."""
        for pattern, rules in list(self._rules.items()):
            matches = wanted.matches_pattern(pattern)
            yield pattern, [rule for rule in rules if wanted.matches_rule(rule)] if matches else []

    # -- changes ---------------------------------------------------------------------------------------------------

    async def add(self, acls: Sequence[Acl]) -> list[KafkaError | None]:
        """Add rules; return the error of each that was not added. Those added are in effect on this broker."""
        errors: list[KafkaError | None] = [_problem(acl) for acl in acls]
        slots: dict[Pattern, list[int]] = {}
        for slot, acl in enumerate(acls):
            if errors[slot] is None:
                slots.setdefault(acl.pattern, []).append(slot)
        limit = TimeLimit()
        for pattern, of_pattern in slots.items():
            added = [acls[slot].rule for slot in of_pattern]
            try:
                await limit.within(partial(self._edit, pattern, partial(_with, added)))
            except KafkaError as error:
                for slot in of_pattern:
                    errors[slot] = error
        return errors

    async def remove(self, filters: Sequence[AclFilter]) -> list[list[tuple[Acl, KafkaError | None]]]:
        """Remove the rules that filters match. Return, by filter, those that it matched, each with the error because of
        which it was not removed."""
        removed: list[list[tuple[Acl, KafkaError | None]]] = [[] for _ in filters]
        patterns = dict.fromkeys(self._rules)
        for one in filters:
            patterns.update(dict.fromkeys(_named_by(one)))
        limit = TimeLimit()
        for pattern in patterns:
            concerned = [(slot, one) for slot, one in enumerate(filters) if one.matches_pattern(pattern)]
            if not concerned:
                continue
            found: dict[Rule, list[int]] = {}
            error: KafkaError | None = None
            try:
                await limit.within(partial(self._edit, pattern, partial(_without, concerned, found)))
            except KafkaError as failure:
                error = failure
            for rule, slots in found.items():
                for slot in slots:
                    removed[slot].append((Acl(pattern, rule), error))
        return removed

    async def _edit(self, pattern: Pattern, edit: Edit) -> None:
        """Write the edited rules of a pattern, and a notice for all brokers. If another program has written in the
        meantime, the edit is applied again, to its rules."""
        path = acl_nodes.pattern_path(pattern)
        notice = Create(acl_nodes.change_prefix(pattern), acl_nodes.encode_change(pattern), sequential=True)
        while True:
            node = await self._store.get(path)
            try:
                before = () if node is None else acl_nodes.decode_rules(node[0], path)
            except NodeFormatError as error:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the rules cannot be changed: {error}") from None
            after = tuple(dict.fromkeys(edit(before)))
            if after == before:
                self._apply(pattern, before)
                return
            write: Operation
            if node is None:
                write = Create(path, acl_nodes.encode_rules(after))
            elif after:
                write = Set(path, acl_nodes.encode_rules(after), node[1].version)
            else:
                write = Delete(path, node[1].version)
            if await changed_with_notice(self._store, write, notice):
                self._apply(pattern, after)
                return

    # -- reading ---------------------------------------------------------------------------------------------------

    def _session_expired(self) -> None:
        for notices in self._notices:
            notices.lose_watch()
        self._spawn(self._read_again())

    async def _read_again(self) -> None:
        """Read all rules again: the notices of changes during the expired session may be deleted already."""
        try:
            await self._read_all()
        except NodeFormatError as error:
            _log.error("Access rules cannot be read, those of before stay in effect: %s", error)

    async def _read_all(self) -> None:
        for notices in self._notices:
            await notices.start()
        patterns = dict.fromkeys(self._rules)
        for pattern_type in acl_nodes.ROOTS:
            patterns.update(dict.fromkeys(await self._stored_patterns(pattern_type)))
        listed = list(patterns)
        for start in range(0, len(listed), _PATTERNS_PER_READ):
            await self._read(listed[start : start + _PATTERNS_PER_READ])

    async def _stored_patterns(self, pattern_type: PatternType) -> list[Pattern]:
        root = acl_nodes.ROOTS[pattern_type]
        found: list[Pattern] = []
        for kind in sorted(await self._store.children(root)):
            resource = code_of(ResourceType, kind)
            if resource is None or resource is ResourceType.ANY:
                _log.warning("%s/%s is of an unknown type of resource: rules below it have no effect", root, kind)
                continue
            names = await self._store.children(f"{root}/{kind}")
            found += [Pattern(resource, name, pattern_type) for name in sorted(names)]
        return found

    async def _read_changes(self, decode: Callable[[bytes], Pattern], notices: list[bytes]) -> None:
        patterns: dict[Pattern, None] = {}
        for data in notices:
            try:
                patterns[decode(data)] = None
            except NodeFormatError as error:
                _log.error("A change of access rules cannot be read, it is not in effect here: %s", error)
        for pattern in patterns:
            try:
                await self._read([pattern])
            except NodeFormatError as error:
                _log.error("Access rules cannot be read, those of before stay in effect: %s", error)

    async def _read(self, patterns: Sequence[Pattern]) -> None:
        paths = [acl_nodes.pattern_path(pattern) for pattern in patterns]
        found = await self._store.get_many(paths)
        # No wait from here on: what a later read or write has found must not be replaced by this.
        decoded = [
            () if node is None else acl_nodes.decode_rules(node[0], path)
            for path, node in zip(paths, found, strict=True)
        ]
        for pattern, rules in zip(patterns, decoded, strict=True):
            self._apply(pattern, rules)

    def _apply(self, pattern: Pattern, rules: tuple[Rule, ...]) -> None:
        if self._rules.get(pattern, ()) == rules:
            return
        if rules:
            self._rules[pattern] = rules
        else:
            del self._rules[pattern]
        for listener in self.on_changed:
            listener(pattern, rules)


def _problem(acl: Acl) -> KafkaError | None:
    """Return why a rule cannot be added (AclApis, AclControlManager.validateNewAcl)."""
    pattern, rule = acl
    if pattern.resource is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        text = f"the only resource of the type CLUSTER is {CLUSTER_NAME}, not {pattern.name!r}"
    elif not pattern.name:
        text = "the name of the resource is empty"
    else:
        text = acl_nodes.name_problem(pattern.name) or principal_problem(rule.principal) or ""
    return KafkaError(ErrorCode.INVALID_REQUEST, text) if text else None


def _named_by(wanted: AclFilter) -> list[Pattern]:
    """Return the patterns that a filter names, which need not be known to this broker yet."""
    if not wanted.is_one_pattern or not wanted.name or acl_nodes.name_problem(wanted.name) is not None:
        return []
    pattern_types = list(acl_nodes.ROOTS) if wanted.pattern_type is PatternType.ANY else [wanted.pattern_type]
    return [Pattern(wanted.resource, wanted.name, pattern_type) for pattern_type in pattern_types]


def _with(added: Sequence[Rule], rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return (*rules, *added)


def _without(
    concerned: Sequence[tuple[int, AclFilter]], found: dict[Rule, list[int]], rules: tuple[Rule, ...]
) -> list[Rule]:
    """Return the rules that no filter matches. `found` then has the others, with the slots of their filters."""
    found.clear()
    for rule in rules:
        slots = [slot for slot, one in concerned if one.matches_rule(rule)]
        if slots:
            found[rule] = slots
    return [rule for rule in rules if rule not in found]
