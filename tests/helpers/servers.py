"""What the requests of a server that reads meet, with limits and guards of a test's choice."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pylogseg.server.catalog import Catalog
from pylogseg.server.coordinator import Coordinator
from pylogseg.server.handlers import READ_ONLY
from pylogseg.server.security import Guard, Security
from pylogseg.server.service import Service


def reading(
    paths: Sequence[str | os.PathLike[str]],
    names: Sequence[str] = (),
    security: Security = Security(),  # noqa: B008
) -> Service:
    """Return the service of a server that reads log directories."""
    return Service(Catalog.open(paths, names), Coordinator(), READ_ONLY, guard=Guard(security))
