"""Registering in a cluster: an id that is still registered, and the time after a lost session. Without a ZooKeeper."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gregor.broker.cluster import membership
from gregor.broker.cluster.membership import Membership, register_when_free, until_informed
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import UpdateMetadataRequest
from gregor.protocol.turns import run_all
from gregor.replication.partition.metadata_image import MetadataImage
from gregor.replication.store import nodes
from gregor.replication.store.embedded import FILE_NAME, EmbeddedStore
from gregor.replication.store.nodes import BrokerRegistration
from gregor.replication.store.registration import BrokerIdInUse, make_persistent_nodes
from tests.broker.harness import Harness, batch, one_partition, produce_request, running
from tests.replication.fakes import on_loop

BROKER = BrokerRegistration(3, (), None, timestamp_ms=0)


async def opened(folder: Path) -> EmbeddedStore:
    store = EmbeddedStore(str(folder / FILE_NAME))
    await store.start()
    await make_persistent_nodes(store)
    return store


@on_loop
async def test_a_broker_waits_for_an_id_that_is_still_registered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(tmp_path)
    await store.create("/brokers/ids/3", b"another session's")
    registering = asyncio.ensure_future(register_when_free(store, BROKER, 60_000))
    async with asyncio.timeout(30):
        while "still registered" not in caplog.text:
            assert not registering.done()
            await asyncio.sleep(0.001)
    assert "95 s at most" in caplog.text  # one and a half time-outs and five seconds
    await store.delete("/brokers/ids/3")
    epoch = await asyncio.wait_for(registering, 30)
    found = await store.get("/brokers/ids/3")
    assert found is not None and (found[0], found[1].czxid) == (nodes.encode_broker(BROKER), epoch)
    await store.close()


@on_loop
async def test_an_id_that_stays_registered_belongs_to_a_live_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "FREED_WITHIN_MORE_MS", 0)
    store = await opened(tmp_path)
    await store.create("/brokers/ids/3", b"another session's")
    with pytest.raises(BrokerIdInUse, match=r"another live broker is registered as broker\.id=3.*another broker\.id"):
        await register_when_free(store, BROKER, 20)
    await store.close()


class Member:
    """A membership in the store of a running node."""

    def __init__(self, harness: Harness) -> None:
        node = harness.node
        self.store, self.local = node.store, harness.broker.controller_requests
        self.ended: list[str] = []
        self.membership = Membership(
            self.store,
            self.local,
            harness.broker.replicas,
            harness.broker.metadata,
            harness.broker.background,
            registration=harness.broker.addresses.registration,
            session_timeout_ms=0,
            end=self.ended.append,
        )
        harness.run(self.membership.join())

    def expire(self, harness: Harness) -> None:
        """The last callback is the membership's."""
        harness.loop.call_soon(self.store.on_session_expired[-1])
        harness.turn(1)


def test_a_broker_without_session_does_not_lead_until_it_gets_leaderships_again(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        harness.create_topic("t", partitions=2)
        member = Member(harness)
        harness.produce("t", b"before")
        epoch = member.local.broker_epoch
        harness.run(member.store.delete("/brokers/ids/0"))
        harness.loop.call_soon(member.store.on_session_expired[-1])
        refused = harness.begin(produce_request("t", batch(b"refused")), 12)
        assert one_partition(harness.run(refused)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        harness.until(lambda: member.local.broker_epoch > epoch)
        # The controller saw it go and come.
        harness.until(lambda: harness.produce("t", b"after").error_code == 0)
        assert [record.value for record in harness.records("t")] == [b"before", b"after"]


def test_a_registration_that_ended_before_it_was_noted_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as harness:
        member = Member(harness)
        noted: list[int] = []
        monkeypatch.setattr(member.local, "registered", noted.append)
        epochs = [7, 8]

        async def register(*_: object) -> int:
            if len(epochs) == 2:
                member.store.on_session_expired[-1]()
            return epochs.pop(0)

        monkeypatch.setattr(membership, "register_when_free", register)
        harness.run(member.membership.renew())
        harness.until(lambda: bool(noted))
        assert (noted, epochs) == ([8], [])


def test_topics_that_were_deleted_while_the_broker_was_away_leave_its_metadata(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        image = harness.broker.metadata
        gone = UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name="gone",
            topic_id=b"g" * 16,
            partition_states=[UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=0, leader=1)],
        )
        harness.create_topic("t")
        # No update of its deletion comes, which another controller completed.
        later = UpdateMetadataRequest(controller_epoch=image.controller_epoch, topic_states=[gone])
        run_all(image.apply(later))
        member = Member(harness)
        deleted: list[str] = []
        image.on_topics_moved.append(deleted.extend)
        harness.run(member.store.delete("/brokers/ids/0"))
        member.expire(harness)
        harness.until(lambda: "gone" in deleted)
        assert image.names() == {"t"}


def test_an_id_that_another_broker_registered_meanwhile_ends_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "FREED_WITHIN_MORE_MS", 0)
    with running(tmp_path) as harness:
        member = Member(harness)
        harness.run(member.store.delete("/brokers/ids/0"))
        harness.run(member.store.create("/brokers/ids/0", b"{}"))
        member.expire(harness)
        harness.until(lambda: bool(member.ended))
        assert "another live broker" in member.ended[0]


@on_loop
async def test_the_wait_for_metadata_ends() -> None:
    image = MetadataImage()
    assert not await until_informed(image, 0.001)
    image.version = 1
    assert await until_informed(image, 0.001)
