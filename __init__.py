"""A Kafka-compatible broker: this folder is the package `gregor`, in the wheel and, through links, in a checkout."""
