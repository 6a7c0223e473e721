"""The command line: the commands, their arguments, and how they end."""
