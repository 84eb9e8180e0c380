"""Any file of a broker's disk, decoded for people and programs; and in the words of Kafka's own dump tool.

`native` writes a file as rows, from `entries` and `batches`; `kafka_style` prints what ``kafka-dump-log.sh`` prints.
Nothing here knows the shell: functions take a callable that writes bytes.
"""
