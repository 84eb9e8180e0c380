"""Export records to files of other formats: Parquet, Arrow, CSV, JSON lines."""
