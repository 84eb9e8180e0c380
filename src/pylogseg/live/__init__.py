"""A cluster that runs, read over Kafka's protocol as a log directory; nothing is written to it."""
