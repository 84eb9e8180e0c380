"""Files that are named one by one: whether they are logs."""

from __future__ import annotations

from pylogseg.env.filesystem import FileSystem
from pylogseg.errors import Ending, RequestError, StorageError
from pylogseg.format.foreign_formats import packed_as
from pylogseg.format.names import FileKind, parse_file_name

#: `packed_as` knows tar by its bytes from 257 on.
_LOOK_BYTES = 512
_PREFIX_BYTES, _LEAST_BYTES = 17, 14


def begins_like_log(head: bytes) -> bool:
    """Return whether bytes may begin a log, of Kafka or of Redpanda: nothing, or a header, which may be cut off."""
    if len(head) < _PREFIX_BYTES:
        return head[:1] in (b"", b"\0")
    length = int.from_bytes(head[8:12], "big", signed=True)
    if (head[0] == 0 and head[16] <= 2 and length >= _LEAST_BYTES) or not any(head):
        return True
    from pylogseg.format.batches import scan  # with numpy, which a listing can do without

    return scan(head, crc=False, max_rows=1).ending is Ending.FOREIGN


def check_is_log(files: FileSystem, path: str) -> None:
    """Refuse a file that is no log, by its name or, if no broker gives such a name, by its first bytes.

    What cannot be opened is left to the reader; packed files too, which it explains.
    """
    name = parse_file_name(files.split(path)[1])
    if name.kind.holds_batches:
        return
    if name.kind is not FileKind.UNKNOWN:
        raise RequestError(
            f"{path}: not a log, but a small file beside logs: `pylogseg dump` decodes it, `pylogseg verify` checks it"
            " with its folder"
        )
    try:
        with files.open(path, sealed=False) as view:
            head = bytes(view.read(0, _LOOK_BYTES))
    except StorageError:
        return
    if not begins_like_log(head) and packed_as(head) is None:
        raise RequestError(
            f"{path}: not a Kafka file, by its name and by its first bytes (a log that is damaged at its beginning"
            " needs its name, 20 digits and .log)"
        )
