"""Without Spark, which `make plain` does not install, nothing is collected here."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("pyspark") else ["test_*.py"]
