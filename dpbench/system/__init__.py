"""What the suite asks of the operating system: files, locks, memory, signals and the terminal."""
