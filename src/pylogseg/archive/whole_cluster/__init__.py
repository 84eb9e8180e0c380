"""A whole cluster of a point: controllers and brokers, each with folders of its own."""
