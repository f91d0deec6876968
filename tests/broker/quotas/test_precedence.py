"""Which of several quotas limits a client."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gregor.broker.quotas.precedence import Shared, applicable
from gregor.replication.entities.quotas import DEFAULT, Name, QuotaEntity

# Apache Kafka's order, from the nodes that its documentation lists.
ORDER: list[tuple[Name, Name]] = [
    ("alice", "app"),
    ("alice", DEFAULT),
    ("alice", None),
    (DEFAULT, "app"),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, "app"),
    (None, DEFAULT),
]
OTHERS: list[tuple[Name, Name]] = [("bob", "app"), ("bob", None), (None, "tool"), ("alice", "tool"), (DEFAULT, "tool")]


@given(chosen=st.sets(st.sampled_from(ORDER + OTHERS)))
def test_the_first_in_the_order_limits_the_client(chosen: set[tuple[Name, Name]]) -> None:
    limits = {QuotaEntity(*names): float(index + 1) for index, names in enumerate(ORDER + OTHERS) if names in chosen}
    first = next((names for names in ORDER if names in chosen), None)
    found = applicable(limits, "alice", "app")
    if first is None:
        assert found is None
        return
    user, client_id = first
    shared = Shared("alice" if user is not None else "", "app" if client_id is not None else "")
    assert found == (shared, ORDER.index(first) + 1)


@given(chosen=st.sets(st.sampled_from(ORDER)))
def test_a_client_without_a_client_id_has_the_quotas_of_users_alone(chosen: set[tuple[Name, Name]]) -> None:
    limits = {QuotaEntity(*names): float(index + 1) for index, names in enumerate(ORDER) if names in chosen}
    found = applicable(limits, "alice", "")
    of_users = [limits[QuotaEntity(name)] for name in ("alice", DEFAULT) if (name, None) in chosen]
    assert found == ((Shared("alice", ""), of_users[0]) if of_users else None)


def test_a_user_named_like_the_default_is_another_one() -> None:
    assert applicable({QuotaEntity("<default>"): 1.0}, "alice", "app") is None
    assert applicable({QuotaEntity(DEFAULT): 1.0}, "<default>", "app") == (Shared("<default>", ""), 1.0)
