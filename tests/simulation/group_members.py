"""The consumers of the simulated group: each lives again and again, in one protocol or the other."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from tests.simulation.classic_lives import ClassicLife
from tests.simulation.groups import Life

if TYPE_CHECKING:
    from tests.simulation.world import World


class GroupMember:
    """A consumer, in one life after the other; from `world.calm` on it stays in the group."""

    def __init__(self, world: World, rng: random.Random, name: str) -> None:
        self._world = world
        self._rng = rng
        self._name = name
        self._lives = 0
        self._instance_id = name if rng.random() < 0.3 else None
        self._regex = rng.random() < 0.3
        self._topics = sorted({topic for topic, _ in world.keys})
        self.life: Life | None = None

    async def run(self) -> None:
        await asyncio.sleep(2.0 * self._rng.random())
        while True:
            await self._live()
            await asyncio.sleep(self._rng.choice((0.1, 1.0, 4.0)) * self._rng.random())

    async def _live(self) -> None:
        world, rng = self._world, self._rng
        self._lives += 1
        name = f"{self._name}.{self._lives}"
        uses_classic = world.mixes_protocols and rng.random() < 0.5
        life = ClassicLife(world, rng, name) if uses_classic else Life(world, rng, name, self._instance_id)
        self._subscribe(life)
        while not life.topic_ids.keys() >= set(self._topics):
            await life.refresh()
            await asyncio.sleep(0.05)
        self.life = life
        while world.is_calm or rng.random() > 0.06:
            await life.heartbeat()
            if not world.groups.is_closed and rng.random() < 0.5:
                await life.commit_some()
            pause_s = (0.3 if world.producing or world.is_calm else 1.5) * rng.random()
            if not world.is_calm and rng.random() < 0.02:
                pause_s = 5.0 * rng.random()  # a long collection of garbage, or a slow record
            if not world.is_calm and rng.random() < 0.02:
                self._subscribe(life)
            await asyncio.sleep(pause_s)
        self.life = None
        if rng.random() < 0.6:
            await life.leave(for_now=self._instance_id is not None and rng.random() < 0.6)
        else:
            life.crash()

    def _subscribe(self, life: Life) -> None:
        topics = self._rng.choice((self._topics, self._topics[:1]))
        uses_regex = self._regex and not isinstance(life, ClassicLife)
        life.subscribe([] if uses_regex else list(topics), "|".join(topics) if uses_regex else "")


def unsettled(world: World, members: list[GroupMember]) -> str | None:
    """Return why not every subscribed partition is owned by one member; None if it is."""
    lives = [member.life for member in members if member.life is not None]
    if len(lives) != len(members):
        return f"{len(members) - len(lives)} members are not in the group"
    subscribed = set().union(*(life.subscribed_topics for life in lives))
    for key in world.keys:
        owners = world.groups.owners(key)
        if key[0] in subscribed and len(owners) != 1:
            return f"{key} is owned by {owners}"
    for life in lives:
        for key, offset in life.owned.items():
            if offset <= 0:
                return f"{life.member_id} has committed nothing for {key}"
    return None
