"""The parts of the server that write: producing, changes of topics, transactions; a server that reads has none."""
