"""Topics that a decision deletes: every broker deletes its replicas, then the nodes of the topic are removed."""

from __future__ import annotations

from collections.abc import Iterable

from gregor.protocol.topic_partition import TopicPartition
from gregor.replication.controller.context import Topic
from gregor.replication.controller.decision.draft import ClusterDraft
from gregor.replication.controller.events import Action, DropDeletion, RemoveTopic


class TopicDeletions:
    """The deletions of one decision: those that begin, that progress and that are over."""

    def __init__(self, draft: ClusterDraft) -> None:
        self._draft = draft
        self.begun: list[str] = []
        """Topics whose deletion begins and of which there are replicas."""
        self.actions: list[Action] = []
        """Done after everything is sent."""

    def begin(self, names: Iterable[str]) -> None:
        """Delete topics, or queue them for deletion while partitions of theirs move."""
        for name in sorted(names):
            topic = self._draft.cluster.topics.get(name)
            if topic is None:
                self.actions.append(DropDeletion(name))
            elif self._is_moving(name):
                self._draft.put_topic(name, topic._replace(deletion_queued=True))
            elif not topic.deleting:
                replicas = frozenset((i, id_) for i, p in topic.partitions.items() for id_ in p.assignment.replicas)
                topic = topic._replace(undeleted=replicas)
                self._draft.put_topic(name, topic)
                if replicas:
                    self.begun.append(name)
                    self._stop_undeleted(name, topic, self._draft.cluster.brokers.keys())
                else:
                    self._remove(name)

    def begin_queued(self, names: Iterable[str]) -> None:
        """Delete those of the topics that are queued for deletion, if no partition of theirs moves any more."""
        for name in [name for name in names if self._draft.cluster.topics[name].deletion_queued]:
            if not self._is_moving(name):
                self._draft.put_topic(name, self._draft.cluster.topics[name]._replace(deletion_queued=False))
                self.begin([name])

    def stop_undeleted(self, brokers: Iterable[int]) -> None:
        """Stop the replicas of topics being deleted that these brokers have not confirmed."""
        for name, topic in self._draft.cluster.topics.items():
            if topic.undeleted:
                self._stop_undeleted(name, topic, brokers)

    def confirm(self, broker_id: int, deleted: frozenset[TopicPartition]) -> None:
        """Record that the broker has deleted these replicas."""
        for name in sorted({key[0] for key in deleted}):
            topic = self._draft.cluster.topics.get(name)
            if topic is None or topic.undeleted is None:
                continue
            confirmed = {(key[1], broker_id) for key in deleted if key[0] == name}
            topic = topic._replace(undeleted=topic.undeleted - confirmed)
            self._draft.put_topic(name, topic)
            if not topic.undeleted:
                self._remove(name)

    def _is_moving(self, name: str) -> bool:
        return any(key[0] == name for keys in (self._draft.moving, self._draft.leaving) for key in keys)

    def _stop_undeleted(self, name: str, topic: Topic, brokers: Iterable[int]) -> None:
        for broker_id in sorted(brokers):
            keys = [TopicPartition(name, index) for index, id_ in sorted(topic.undeleted or ()) if id_ == broker_id]
            if keys:
                self._draft.stop_replicas(broker_id, keys, delete=True)

    def _remove(self, name: str) -> None:
        self._draft.remove_topic(name)
        failed = frozenset(replica for replica in self._draft.cluster.failed if replica[0] != name)
        self._draft.replace(failed=failed)
        self.actions.append(RemoveTopic(name))
