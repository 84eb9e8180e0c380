"""Tests of format/records.py. A fixed number of hostile inputs for every target: no crash, no other error than ours, in
bounded time and memory.
"""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import kept_inputs
from helpers.depth import IS_DEEP
from soak import hostile

INPUTS = int(os.environ.get("PYLOGSEG_HOSTILE_INPUTS", "100000" if IS_DEEP else "15000"))
#: Address space that all inputs of a target may add; a length that is believed before it is checked asks for more.
MEMORY_BYTES = 512 << 20


@contextmanager
def limited_memory():
    """A limit of the process's address space, where there is one; sanitizers need terabytes of it."""
    status = Path("/proc/self/statm")
    if not status.exists() or "asan" in os.environ.get("LD_PRELOAD", ""):
        yield
        return
    import resource

    used = int(status.read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("target", sorted(hostile.TARGETS))
def test_hostile(target):
    shares = sum(share for _, share in hostile.TARGETS.values())
    count = INPUTS * hostile.TARGETS[target][1] // shares
    with limited_memory():
        report = hostile.run(count, seed=4, target=target)
    assert report.counts[target] == count


def test_inputs_that_coverage_led_to():
    """Those that `soak/guided.py` found and the repository keeps; more of them is what a night's fuzzing is for."""
    kept = kept_inputs.kept()
    assert kept
    with limited_memory():
        for target, inputs in kept.items():
            for data in inputs:
                try:
                    hostile.TARGETS[target][0](kept_inputs.Drawn(data))
                except Exception as error:
                    raise AssertionError(f"{target}, {data!r}") from error
