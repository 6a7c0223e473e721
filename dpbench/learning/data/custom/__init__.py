"""The user's own data, described by settings: tables and images from files or the hub."""
