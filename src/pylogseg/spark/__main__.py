"""`python -m pylogseg.spark`, and the file that `spark-submit` takes."""

from pylogseg.spark.commands import main

main()
