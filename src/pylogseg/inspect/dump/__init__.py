"""Dump any file of a broker's disk: as rows for people and programs, or like Kafka's own dump tool.

`native` writes a file as rows, from `entries` and `batches`; `kafka_style` prints what ``kafka-dump-log.sh`` prints.
These modules do not depend on the shell: functions take a callable that writes bytes.
"""
