"""A slow reader and writer of Kafka's record formats in plain Python, which the compiled kernels are compared with.

Written from the format alone, with nothing of the package and, for decompression, with none of its libraries.

- `varint`: variable-length integers
- `compression`: the four codecs with Kafka's framing
- `batch`: batches and records of magic 0, 1 and 2
- `build`: the same the other way round
- `control`: what control records say
"""
