"""answers.producer_clients: the clients of transactional producers, as text of a response and back."""

from __future__ import annotations

import pytest

from gregor.broker.answers import producer_clients
from gregor.broker.answers.producer_clients import ProducerClients, clients_in


def test_clients_of_producers_survive_the_way_to_a_tool() -> None:
    clients = ProducerClients()
    assert clients.details([7]) is None
    clients.note(7, 'say "é"', "192.0.2.7")
    clients.note(8, None, "192.0.2.8")
    assert clients.text_of(9) is None
    assert clients_in(clients.details([7, 8, 9])) == {7: 'say "é" at 192.0.2.7', 8: "192.0.2.8"}
    clients.note(7, "moved", "192.0.2.9")
    assert clients.text_of(7) == "moved at 192.0.2.9"


@pytest.mark.parametrize(
    "text", [None, "", "a text of another broker", "7", "[]", '{"clients": [1]}', "{}", "[" * 9999]
)
def test_other_texts_name_no_client(text: str | None) -> None:
    assert clients_in(text) == {}


def test_clients_noted_first_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_clients, "MAX_CLIENTS", 2)
    clients = ProducerClients()
    for producer_id, client_id in ((1, "a"), (2, "b"), (1, "a again"), (3, "c")):
        clients.note(producer_id, client_id, "host")
    assert [clients.text_of(one) for one in (1, 2, 3)] == ["a again at host", None, "c at host"]


def test_details_fit_into_a_string_of_the_protocol() -> None:
    clients = ProducerClients()
    clients.note(0, "\x01" * 40_000, "192.0.2.7")
    for producer_id in range(1, 2_000):
        clients.note(producer_id, f"an application with a long name, its thread {producer_id}", "192.0.2.7")
    details = clients.details(range(2_000))
    assert details is not None
    assert 20_000 < len(details.encode()) < 32_767
    assert clients_in(details)[1] == "an application with a long name, its thread 1 at 192.0.2.7"
