"""Attacks on epsilons: lower bounds that canaries show in the real code.

game (a run, or steps by themselves) -> scores of canaries -> inference -> claim and verdict
"""
