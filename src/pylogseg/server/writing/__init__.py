"""What is added to the server by writing: producing, changes of topics, transactions; a server that reads has none."""
