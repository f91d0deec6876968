"""What the metadata store keeps of users, client ids and addresses, in Apache Kafka's nodes."""
