"""Commands on the logs of a broker that does not run: each takes a log directory or the folder of one partition.

Functions are loaded when they are asked for. The module that a function lives in has another name than the function,
since a module that was imported would hide it here. `pylogseg.offline.running` is what they have in common.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogseg.offline.compaction import compact
    from pylogseg.offline.comparison import diff
    from pylogseg.offline.copying import copy
    from pylogseg.offline.deleting import delete_records
    from pylogseg.offline.moving import move
    from pylogseg.offline.recoding import recode
    from pylogseg.offline.redaction import redact
    from pylogseg.offline.reindexing import reindex
    from pylogseg.offline.repairing import repair
    from pylogseg.offline.restoring import restore
    from pylogseg.offline.retaining import retain
    from pylogseg.offline.truncation import truncate

# Name -> module.
_HOMES = {
    "compact": "pylogseg.offline.compaction",
    "copy": "pylogseg.offline.copying",
    "delete_records": "pylogseg.offline.deleting",
    "diff": "pylogseg.offline.comparison",
    "move": "pylogseg.offline.moving",
    "recode": "pylogseg.offline.recoding",
    "redact": "pylogseg.offline.redaction",
    "reindex": "pylogseg.offline.reindexing",
    "repair": "pylogseg.offline.repairing",
    "restore": "pylogseg.offline.restoring",
    "retain": "pylogseg.offline.retaining",
    "truncate": "pylogseg.offline.truncation",
}

__all__ = [
    "compact",
    "copy",
    "delete_records",
    "diff",
    "move",
    "recode",
    "redact",
    "reindex",
    "repair",
    "restore",
    "retain",
    "truncate",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pylogseg.offline' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
