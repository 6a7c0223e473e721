"""The cost of private steps, in dpbench and in other libraries, relative to a plain step."""
