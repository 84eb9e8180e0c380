"""The errors of all codecs, and the limit of decompression."""

import zlib

#: Bytes that one batch may decompress to, unless the caller says otherwise.
DECOMPRESSED_LIMIT_BYTES = 64 << 20


class CodecError(ValueError):
    """Compressed bytes that cannot be read; the caller, who knows the file, makes a `CorruptionError` of it."""

    def __init__(self, reason: str, *, is_limit: bool = False) -> None:
        super().__init__(reason)
        self.is_limit = is_limit  #: Not read because of a limit; the bytes may be valid.


def over(limit: int) -> CodecError:
    """Return the error for bytes that would become more than `limit` bytes."""
    return CodecError(f"decompresses to more than {limit} bytes, the limit for one batch: {RAISE_IT}", is_limit=True)


def of_library(name: str, error: Exception, what: str = "") -> CodecError | MemoryError:
    """Make an error of ours of a library's error; a library without memory says nothing about the bytes."""
    reason, text = f"{name}: {what}{error}", str(error)
    # -4 is zlib's own number for it, and another fault in isal.
    has_no_memory = "not enough memory" in text or (type(error) is zlib.error and text.startswith("Error -4 "))
    return MemoryError(reason) if has_no_memory else CodecError(reason)


#: What to do about a batch that may be whole; see `with_option`.
RAISE_IT = "it may be whole, raise max_decompressed_bytes to read it"


def in_shell(text: str) -> str:
    """Replace Python's option in an error by the shell's."""
    return with_option(text, "--max-decompressed-bytes")


def with_option(text: str, name: str) -> str:
    """Replace the name of a Python option in an error's text by its name in the shell or in Spark."""
    return text.replace(RAISE_IT, RAISE_IT.replace("max_decompressed_bytes", name))


class ArenaFullError(Exception):
    """The batches of one call become more than may be held at once; fewer of them may do."""
