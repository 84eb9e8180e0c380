"""Record columns as Arrow and back, `encode`, and functions of Arrow columns."""
