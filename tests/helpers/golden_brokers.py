"""Golden data of whole brokers."""

#: Folders of `golden/broker-4.3` that hold a broker's log directories.
BROKERS = [
    "codecs",
    "txn",
    "txn-old",
    "compact-0-before",
    "compact-1-cleaned",
    "compact-2-before",
    "compact-3-cleaned",
    "compact-4-before",
    "compact-5-cleaned",
    "metadata",
    "metadata-trimmed",
    "retention",
    "unclean",
]
