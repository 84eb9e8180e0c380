"""What several tests need: logs and disks to test on, ways to run a command, and checks of results."""
