"""The values of records as columns: text, JSON, Avro, Protobuf, and change records in the format of Debezium."""
