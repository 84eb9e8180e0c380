"""Kafka's protocol over log directories: any client reads them as from a broker, and nothing on the disk changes."""
