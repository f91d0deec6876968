"""Group coordinator: state machines behind narrow ports."""
