"""Commands on the logs of a broker that does not run: each takes a log directory or the folder of one partition.

The module that a function lives in has another name than the function, since a module that was imported would hide it
here. `pylogseg.offline.running` is what they have in common.
"""

from pylogseg._lazy import load_lazily

__getattr__, __dir__, __all__ = load_lazily(__name__)
