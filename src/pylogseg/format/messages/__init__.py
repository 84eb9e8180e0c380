"""Messages that Kafka's schemas describe: what brokers write into their own topics, both ways.

`schema` has the table of messages, `codec` turns one message into a dictionary and back, `framing` has the bytes in
front of one, `text` writes one as Kafka's tools do, and `program` makes the plan by which a kernel decodes columns.
"""
