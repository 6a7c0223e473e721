"""Hyper-parameter search: ranges, trials, and the choice among them by a named rule.

    space -> samplers propose configurations -> runs on a validation split -> selection -> report

Records are the only storage: an interrupted search requests the same runs again, and finds the
records of those that are finished. Ranges are parsed by Hydra's grammar. Hydra's Optuna plug-in is
not used, since its last release (1.3.0) requires optuna<3; Optuna is called directly.
"""
