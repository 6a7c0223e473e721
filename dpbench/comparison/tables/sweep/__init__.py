"""The table of a sweep: means over seeds, epsilons, and differences to a baseline method."""
