"""Consumer groups of the newer protocol (KIP-848): the coordinator computes their assignments."""
