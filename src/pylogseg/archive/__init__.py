"""Backups of Kafka's logs as tiers are laid out, with points in time.

An archive is a tier of Aiven's layout below a URL, and files ``points/ID.json`` that say what belongs to a moment.
`pylogseg.disk.tier.point` describes them.
"""

from pylogseg._lazy import load_lazily

__getattr__, __dir__, __all__ = load_lazily(__name__)
