"""A broker's part in its cluster: membership, isolation, controlled shutdown, internal topics."""
