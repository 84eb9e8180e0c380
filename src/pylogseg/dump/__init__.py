"""Any file of a broker's disk, decoded for people and programs; and in the words of Kafka's own dump tool.

`entries` gives values, `records` the records of a file of batches; `kafka_style` prints what ``kafka-dump-log.sh`` prints.
Nothing here knows the shell: functions take a callable that writes bytes.
"""
