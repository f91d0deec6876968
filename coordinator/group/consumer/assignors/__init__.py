"""The assignors of the coordinator: pure functions from members and topics to an assignment (KIP-848)."""
