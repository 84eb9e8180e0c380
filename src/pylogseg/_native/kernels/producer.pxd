"""The state of a producer in a run of appends: its last batches, and whether the next one follows them."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t

from pylogseg._native.kernels cimport batch as header

cdef enum:
    TRANSACTIONAL = 0x10
    KEPT_BATCHES = 5           # remembered batches of a producer


cdef struct Kept:              # a remembered batch
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t delta


cdef struct Producer:
    int64_t id
    int32_t epoch
    int32_t last_sequence
    bint in_transaction
    int32_t count              # batches in this run
    Kept kept[KEPT_BATCHES]    # the last of them, as a ring


cdef inline bint follows(const Producer *producer, const header.BatchRow *batch) noexcept nogil:
    """Check whether the batch is the next one of its producer, and changes no transaction."""
    if batch.producer_epoch != producer.epoch or producer.last_sequence == INT32_MAX or batch.attributes & header.CONTROL:
        return False
    if batch.base_sequence != producer.last_sequence + 1 or batch.base_sequence > INT32_MAX - batch.count:
        return False
    return (batch.attributes & TRANSACTIONAL != 0) == producer.in_transaction


cdef inline void note(Producer *producer, const header.BatchRow *batch) noexcept nogil:
    cdef Kept *kept = &producer.kept[producer.count % KEPT_BATCHES]
    kept.last_offset = batch.last_offset
    kept.timestamp = batch.max_timestamp
    kept.last_sequence = batch.base_sequence + batch.count - 1
    kept.delta = batch.count - 1
    producer.last_sequence = kept.last_sequence
    producer.count += 1
