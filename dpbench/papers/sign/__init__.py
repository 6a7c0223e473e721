"""Claims of the note on DP-SignSGD that need no training: error rates of signs, and epsilons."""
