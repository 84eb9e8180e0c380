"""Archives of tests lie in a folder whose name URLs and shells read otherwise."""

from __future__ import annotations

import pytest
from archive.histories import History
from helpers.odd_folder import tmp_path

__all__ = ["history", "tmp_path"]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    history = History(tmp_path_factory.mktemp("history"))
    history.run()
    return history
