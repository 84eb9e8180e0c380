"""A log made here of pieces from there: the files beside its segments, its batches, each checked."""
