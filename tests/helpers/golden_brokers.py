"""Golden data of whole brokers."""

from helpers.depth import IS_DEEP

_4_3 = [
    "codecs", "txn", "txn-old", "compact-0-before", "compact-1-cleaned", "compact-2-before", "compact-3-cleaned",
    "compact-4-before", "compact-5-cleaned", "metadata", "metadata-trimmed", "retention", "unclean",
]  # fmt: skip
#: One log at three cleanings: the last one is in an ordinary run.
_EARLIER = {"compact-0-before", "compact-1-cleaned", "compact-2-before", "compact-3-cleaned"}
#: Folders of the golden data that hold a broker's log directories.
BROKERS = [*(f"broker-4.3/{name}" for name in _4_3 if IS_DEEP or name not in _EARLIER), "broker-4.4/all"]
