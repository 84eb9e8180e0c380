"""Tiered storage: the objects that plugins of a broker leave, as the folders and files of a log directory."""
