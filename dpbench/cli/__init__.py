"""The command line: what each command takes, and how it ends."""
