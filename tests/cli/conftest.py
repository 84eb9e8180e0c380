"""Logs of tests lie in a folder whose name URLs and shells read otherwise."""

from helpers.odd_folder import tmp_path

__all__ = ["tmp_path"]
