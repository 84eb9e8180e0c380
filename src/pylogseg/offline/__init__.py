"""Commands on the logs of a broker that does not run: each takes a log directory or the folder of one partition.

Functions are loaded when they are asked for. The module that a function lives in has another name than the function,
since a module that was imported would hide it here. `pylogseg.offline.running` is what they have in common.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogseg.offline.compacting import compact
    from pylogseg.offline.comparing import diff
    from pylogseg.offline.copying.command import copy
    from pylogseg.offline.deleting_records import delete_records
    from pylogseg.offline.merging.command import merge
    from pylogseg.offline.moving import move
    from pylogseg.offline.recoding import recode
    from pylogseg.offline.recovering import recover
    from pylogseg.offline.redacting import redact
    from pylogseg.offline.reindexing import reindex
    from pylogseg.offline.repairing.command import repair
    from pylogseg.offline.restoring.command import restore
    from pylogseg.offline.retaining import retain
    from pylogseg.offline.truncating import truncate

# Name -> module.
_HOMES = {
    "compact": "pylogseg.offline.compacting",
    "copy": "pylogseg.offline.copying.command",
    "delete_records": "pylogseg.offline.deleting_records",
    "diff": "pylogseg.offline.comparing",
    "merge": "pylogseg.offline.merging.command",
    "move": "pylogseg.offline.moving",
    "recode": "pylogseg.offline.recoding",
    "recover": "pylogseg.offline.recovering",
    "redact": "pylogseg.offline.redacting",
    "reindex": "pylogseg.offline.reindexing",
    "repair": "pylogseg.offline.repairing.command",
    "restore": "pylogseg.offline.restoring.command",
    "retain": "pylogseg.offline.retaining",
    "truncate": "pylogseg.offline.truncating",
}

__all__ = [
    "compact",
    "copy",
    "delete_records",
    "diff",
    "merge",
    "move",
    "recode",
    "recover",
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
