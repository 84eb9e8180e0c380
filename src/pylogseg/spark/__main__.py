"""The program `python -m pylogseg.spark`; `spark-submit` takes this file."""

import sys

try:
    from pylogseg.spark.commands import main
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow", "click"):
        raise
    print(f"pylogseg: {error.name} is not installed: run pip install 'pylogseg[spark]'", file=sys.stderr)
    sys.exit(2)

main()
