"""What the sign note says and we compute without training: errors of signs, and epsilons."""
