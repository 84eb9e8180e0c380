"""Messages that Kafka's schemas describe, read and written: records of Kafka's own topics, and requests.

`schema` has the table of messages, `codec` turns one message into a dictionary and back, `framing` has the bytes in
front of one, `text` writes one as Kafka's tools do, and `program` makes the plan by which a kernel decodes columns.
"""
