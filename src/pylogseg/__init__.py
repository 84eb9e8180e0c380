"""Kafka's log storage engine and record format, without the broker."""

from pylogseg._lazy import load_lazily
from pylogseg._version import __version__ as __version__

__getattr__, __dir__, __all__ = load_lazily(__name__)
