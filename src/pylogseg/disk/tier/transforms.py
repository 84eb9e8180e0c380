"""What a chunk of an object becomes: decrypted, then decompressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogseg.disk.tier.keys import KeyRing, NotOpened, cipher
from pylogseg.disk.tier.manifest import Encryption
from pylogseg.format.codec_error import CodecError
from pylogseg.format.zstd_frames import decompress

_IV_BYTES = 12
#: What encryption adds to a chunk.
OVERHEAD_BYTES = _IV_BYTES + 16

Open = Callable[[Any, int], bytes | str]


def opener(encryption: Encryption | None, is_compressed: bool, keys: KeyRing) -> Open:
    """Return the function that opens the chunks of a segment; `NotOpened` if there is no key for it.

    Of a chunk and the size that it should have it returns the bytes, or the reason why there are none.
    """
    steps: list[Callable[[Any, int], Any]] = []
    if encryption is not None:
        aad, decrypt = encryption.aad, cipher(keys.unwrap(encryption.key_id, encryption.wrapped))

        def decrypted(data: Any, size: int) -> bytes:
            if len(data) < OVERHEAD_BYTES:
                raise NotOpened(f"{len(data)} bytes are too few for an encrypted chunk")
            return decrypt(bytes(data[:_IV_BYTES]), data[_IV_BYTES:], aad)

        steps.append(decrypted)
    if is_compressed:
        steps.append(_decompressed)

    def open_chunk(data: Any, size: int) -> bytes | str:
        try:
            for step in steps:
                data = step(data, size)
        except NotOpened as error:
            return str(error)
        return bytes(data)

    return open_chunk


def _decompressed(data: Any, size: int) -> bytes:
    try:
        return decompress(memoryview(data), size)
    except CodecError as error:
        raise NotOpened(f"it becomes more than {size} bytes" if error.is_limit else str(error)) from None
