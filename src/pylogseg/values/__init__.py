"""The meaning of keys and values: schemas, typed columns, one text for each value; records of Kafka's own topics."""
