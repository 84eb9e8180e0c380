"""`python -m pylogseg.spark`, and the file that `spark-submit` takes."""

import sys

try:
    from pylogseg.spark.commands import main
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow", "click"):
        raise
    print(f"pylogseg: there is no {error.name} here; pip install 'pylogseg[spark]' brings it", file=sys.stderr)
    sys.exit(2)

main()
