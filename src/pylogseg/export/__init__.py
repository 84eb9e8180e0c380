"""Records into files of other formats: Parquet, Arrow, CSV, JSON lines."""
