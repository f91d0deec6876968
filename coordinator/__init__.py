"""Group and transaction coordinators: state machines behind narrow ports."""
