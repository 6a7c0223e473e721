"""Attacks on nominal epsilons: lower bounds from canaries in the real training code.

game (a whole run, or single steps) -> scores of canaries -> inference -> verdict on the
nominal epsilon
"""
