"""Spark jobs for whole disks: records stay in the workers, and a table of results is returned."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylogseg.spark.jobs.checking import verify
    from pylogseg.spark.jobs.comparing import diff
    from pylogseg.spark.jobs.counting import stats
    from pylogseg.spark.jobs.exporting import export
    from pylogseg.spark.jobs.reporting import report
    from pylogseg.spark.jobs.restoring import restore
    from pylogseg.spark.jobs.restoring_tier import restore_tier
    from pylogseg.spark.jobs.rewriting import compact, redact
    from pylogseg.spark.jobs.searching import grep

# Loaded on first use, as in the packages around this one.
_HOMES = {
    "compact": "pylogseg.spark.jobs.rewriting",
    "diff": "pylogseg.spark.jobs.comparing",
    "export": "pylogseg.spark.jobs.exporting",
    "grep": "pylogseg.spark.jobs.searching",
    "redact": "pylogseg.spark.jobs.rewriting",
    "report": "pylogseg.spark.jobs.reporting",
    "restore": "pylogseg.spark.jobs.restoring",
    "restore_tier": "pylogseg.spark.jobs.restoring_tier",
    "stats": "pylogseg.spark.jobs.counting",
    "verify": "pylogseg.spark.jobs.checking",
}

__all__ = ["compact", "diff", "export", "grep", "redact", "report", "restore", "restore_tier", "stats", "verify"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pylogseg.spark.jobs' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
