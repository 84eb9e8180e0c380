"""What keys and values mean: schemas, typed columns, one text for each value; records of Kafka's own topics."""
