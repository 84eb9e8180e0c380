"""The log of one partition: producers, leader epochs, validation of appends, segments, recovery."""
