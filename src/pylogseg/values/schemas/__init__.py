"""Schemas of values: where they are, and what bytes of Avro, Protobuf and JSON mean by them."""
