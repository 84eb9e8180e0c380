"""SipHash with a result of 128 bits, from the paper and its reference's constants."""

MASK = 2**64 - 1


def _turn(x, bits):
    return (x << bits | x >> (64 - bits)) & MASK


def _rounds(v, count):
    for _ in range(count):
        v[0] = (v[0] + v[1]) & MASK
        v[1] = _turn(v[1], 13) ^ v[0]
        v[0] = _turn(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = _turn(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = _turn(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = _turn(v[1], 17) ^ v[2]
        v[2] = _turn(v[2], 32)


def siphash_128(data, k0, k1, compression, finalization):
    """Two words of 64 bits."""
    words = [0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573]
    v = [word ^ key for word, key in zip(words, (k0, k1, k0, k1), strict=True)]
    v[1] ^= 0xEE
    whole = len(data) // 8 * 8
    blocks = [int.from_bytes(data[i : i + 8], "little") for i in range(0, whole, 8)]
    blocks.append(int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56)
    for block in blocks:
        v[3] ^= block
        _rounds(v, compression)
        v[0] ^= block
    v[2] ^= 0xEE
    _rounds(v, finalization)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    _rounds(v, finalization)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


def siphash_13_128(data, k0, k1):
    """One round per word, three to finish."""
    return siphash_128(data, k0, k1, 1, 3)
