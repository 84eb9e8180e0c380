"""What the topics hold that Kafka writes for itself."""
