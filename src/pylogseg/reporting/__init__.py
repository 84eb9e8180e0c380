"""The report of a disk: facts about its topics, partitions and segments, and the page that shows them."""
