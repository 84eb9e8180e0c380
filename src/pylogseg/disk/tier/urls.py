"""The URLs of tiers: what they look like, and the options that go with them."""

from __future__ import annotations

import os

from pylogseg.errors import RequestError

#: Between the URL of a tier and the names in it.
INSIDE = "!/"
#: The option of a tier among those of its storage: see `disk.tier.keys.KeyRing`.
KEYS_OPTION = "tier_keys"
#: Where keys are looked for if none are given: in the environment, a PEM file or a folder of them.
KEYS_VARIABLE = "PYLOGSEG_TIER_KEYS"
#: How the URL of a tier begins, before the plus sign: the layout of its objects.
LAYOUTS = ("aiven", "localtier")


def is_tier(path: str | os.PathLike[str]) -> bool:
    """Check whether a path is the URL of a tier."""
    layout, _, rest = os.fspath(path).partition("+")
    return layout in LAYOUTS and "://" in rest


def check_layout(text: str) -> None:
    """Refuse what was meant as the URL of a tier."""
    layout, plus, rest = text.partition("+")
    if layout in LAYOUTS and plus and "://" not in rest and not os.path.exists(text):
        raise RequestError(f"{text}: not the URL of a tier: the store is missing, as in {layout}+file:///path")
    if plus and layout.isalnum() and layout not in LAYOUTS and "://" in rest:
        known = " and ".join(f"{name}+" for name in LAYOUTS)
        raise RequestError(f"{text}: no tier has the layout {layout!r}; there are {known}")
