"""Known mistakes of the processes that close the sessions of brokers that have died."""

from __future__ import annotations

from tests.simulation.edits import Edit, Mutant

SESSION_MUTANTS = (
    Mutant(
        "a session watcher closes the session of a frozen broker",
        (
            Edit(
                "tests/simulation",
                "_freeze",
                "world.loop.freeze(process)",
                "(world.loop.freeze(process), node.session_watcher.broker_ended())",
            ),
        ),
        seed=2,
    ),
    Mutant(
        "a broker that starts again closes its own new session",
        (
            Edit(
                "broker",
                "close_predecessor",
                "asyncio.to_thread(self._close, self._predecessor)",
                "asyncio.to_thread(self._close, self._note.read())",
            ),
        ),
    ),
    Mutant(
        "a broker whose session was closed goes on leading",
        (Edit("broker", "_session_expired", "self._background.gate.start(ANY)", "None"),),
        seed=2,
    ),
    Mutant(
        "a session watcher closes a session after a farewell",
        # Either alone does no harm: after a farewell, no session is among the lines that are kept.
        (
            Edit("broker", "_apply", "message.get('farewell')", "False"),
            Edit("broker", "decisive", "len(lines) > 3", "False"),
        ),
        seed=1,
    ),
    Mutant(
        "a session that could not be closed gets a farewell",
        (Edit("broker", "end", "session_closed", "True"),),
        seed=23,
    ),
)
