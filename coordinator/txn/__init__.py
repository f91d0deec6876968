"""Transactions: the coordinator of transactional ids, for both transaction protocols (KIP-98, KIP-890)."""
