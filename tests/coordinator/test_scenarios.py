"""Scenarios as scripts: `testdata/*.txt` hold commands and what the group then does, decision by decision.

Run with REWRITE=1 in the environment to write what happens now into the files, and review the difference.

A command begins with `>`. Processes have names; `a/i` is the static member of instance "i". Member ids are shown as the
process that got them, with a number: a1, a2.

    join NAME[/INSTANCE] [key=value]   send JoinGroup as often as needed, with the id that the process knows
    sync NAME [MEMBER=ASSIGNMENT...]   assignments are for the leader, MEMBER as shown
    heartbeat NAME / leave NAME... / commit NAME OFFSET / forget NAME (the process restarts and has no id)
    sleep MS / fail (the next append does) / move (to another coordinator)
"""

import os
from pathlib import Path

import pytest

from gregor.coordinator.group.records import decode_record
from gregor.coordinator.result import Record
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages import GroupMetadataKey, GroupMetadataValue, JoinGroupResponse, SyncGroupResponse
from tests.coordinator.context import Context
from tests.coordinator.machinery import Call

SCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


class Process:
    def __init__(self, name: str) -> None:
        self.name = name
        self.instance: str | None = None
        self.member_id = ""
        self.generation = -1
        self.joining: Call[JoinGroupResponse] | None = None
        self.syncing: Call[SyncGroupResponse] | None = None


class Script:
    """Runs the commands of one file and writes down what happens."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.processes: dict[str, Process] = {}
        self.shown: dict[str, str] = {}
        self.out: list[str] = []
        self.state = ""
        self.written = 0

    def run(self, text: str) -> str:
        for line in text.splitlines():
            if line.startswith("#") or not line:
                self.out.append(line)
            elif line.startswith(">"):
                self.out.append(line)
                verb, *words = line[1:].split()
                getattr(self, verb)(*words)
                self.look()
        return "\n".join(self.out) + "\n"

    def say(self, text: str) -> None:
        self.out.append(f"  {text}")

    def name_of(self, member_id: str) -> str:
        return self.shown.get(member_id, member_id)

    def learn(self, process: Process, member_id: str) -> None:
        process.member_id = member_id
        number = sum(name.rstrip("0123456789") == process.name for name in self.shown.values()) + 1
        self.shown.setdefault(member_id, f"{process.name}{number}")

    # --- what happened

    def look(self) -> None:
        for process in self.processes.values():
            self.look_at_join(process)
        for process in self.processes.values():
            if process.syncing is not None and process.syncing.done:
                told = process.syncing.response
                process.syncing = None
                outcome = ErrorCode(told.error_code).name if told.error_code else told.assignment.decode() or "nothing"
                self.say(f"{process.name} is assigned {outcome}")
        records = self.context.log.records()
        for key, value in records[self.written :]:
            record = decode_record(key, value)
            if record is not None:
                self.say(f"log: {self.text_of(record)}")
        self.written = len(records)
        state = self.context.state().value
        membership = self.context.shard.soft.memberships.get("g")
        if membership is not None and membership.members:
            names = " ".join(self.name_of(member_id) for member_id in membership.members)
            state += f", generation {membership.generation}, {names}"
        if state != self.state:
            self.say(f"group: {state}")
            self.state = state

    def look_at_join(self, process: Process) -> None:
        if process.joining is None or not process.joining.done:
            return
        told = process.joining.response
        process.joining = None
        if told.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.learn(process, told.member_id)
            self.send_join(process)
            self.look_at_join(process)
        elif told.error_code:
            self.say(f"{process.name} is refused: {ErrorCode(told.error_code).name}")
        else:
            self.learn(process, told.member_id)
            process.generation = told.generation_id
            text = f"{process.name} joins as {self.name_of(told.member_id)} in generation {told.generation_id}"
            if told.members:
                text += f", leads {' '.join(self.name_of(member.member_id) for member in told.members)}"
            self.say(text + (", skips the assignment" if told.skip_assignment else ""))

    def text_of(self, record: Record) -> str:
        if not isinstance(record.key, GroupMetadataKey):
            offset = "forgotten" if record.value is None else record.value.offset
            return f"offset of {record.key.topic}-{record.key.partition} {offset}"
        if record.value is None:
            return "no group"
        value: GroupMetadataValue = record.value
        members = " ".join(f"{self.name_of(member.member_id)}={member.assignment.decode()}" for member in value.members)
        return f"generation {value.generation}, {members or 'empty'}"

    # --- commands

    def join(self, word: str, *options: str) -> None:
        name, _, instance = word.partition("/")
        process = self.processes.setdefault(name, Process(name))
        process.instance = instance or process.instance
        self.options = {key: int(value) for key, value in (option.split("=") for option in options)}
        self.send_join(process)

    def send_join(self, process: Process) -> None:
        # Later joins than the parked one supersede it, so only the last is listened to.
        process.joining = self.context.join(
            process.member_id,
            instance=process.instance,
            session_ms=self.options.get("session", 10_000),
            rebalance_ms=self.options.get("rebalance", 30_000),
            protocols=[("range", b"%d" % self.options.get("topics", 1))],
        )

    def sync(self, name: str, *given: str) -> None:
        process = self.processes[name]
        ids = {shown: member_id for member_id, shown in self.shown.items()}
        assignments = {ids[who]: what.encode() for who, what in (pair.split("=") for pair in given)}
        process.syncing = self.context.sync(
            process.member_id, process.generation, assignments, instance=process.instance
        )

    def heartbeat(self, name: str) -> None:
        process = self.processes[name]
        self.say(self.context.heartbeat(process.member_id, process.generation, instance=process.instance).name)

    def leave(self, *names: str) -> None:
        call = self.context.leave(*[(self.processes[name].member_id, self.processes[name].instance) for name in names])
        errors = [call.response.error_code, *(answer.error_code for answer in call.response.members)]
        self.say(" ".join(ErrorCode(error).name for error in errors[1:] or errors))

    def commit(self, name: str, offset: str) -> None:
        process = self.processes[name]
        error = self.context.commit_error(
            offset=int(offset), member_id=process.member_id, generation=process.generation, instance=process.instance
        )
        self.say(error.name)

    def forget(self, name: str) -> None:
        self.processes[name].member_id = ""

    def sleep(self, ms: str) -> None:
        self.context.sleep(int(ms))

    def fail(self) -> None:
        self.context.fail()

    def move(self) -> None:
        self.context.restart()


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_the_script_plays_out_as_written(path: Path) -> None:
    expected = path.read_text()
    with Context() as context:
        happened = Script(context).run(expected)
        assert context.hard_state() == context.replayed_state()
    if os.environ.get("REWRITE"):
        path.write_text(happened)
    assert happened == path.read_text()


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5
