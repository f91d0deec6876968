"""Groups that change between the classic and the consumer protocol, and members of both in one group (KIP-848)."""
