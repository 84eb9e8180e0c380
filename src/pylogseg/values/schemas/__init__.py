"""Schemas of values: their places, and the decoding of Avro, Protobuf and JSON by them."""
