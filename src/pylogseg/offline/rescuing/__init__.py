"""A quorum of controllers that lost its majority starts again, from the best copy of its metadata log."""
