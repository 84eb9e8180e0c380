"""The errors of all codecs."""


class CodecError(ValueError):
    """Compressed bytes that cannot be read; the text says why.

    It knows no file: the caller turns it into a `pylogseg.errors.CorruptionError` with path and position.
    """


def over(limit: int) -> CodecError:
    """The error for bytes that would become more than `limit` bytes."""
    return CodecError(f"decompresses to more than {limit} bytes, the limit for one batch")


class ArenaFullError(Exception):
    """The batches of one call become more than may be held at once; fewer of them may do."""
