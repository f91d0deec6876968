"""The finalised features in the broker: updates one at a time, and what ends on all brokers before a level falls."""
