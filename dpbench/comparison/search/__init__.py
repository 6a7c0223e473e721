"""Hyper-parameter search: ranges, trials on a validation split, and the choice by a named rule.

Records are the only storage: an interrupted search finds those of runs that are finished. Optuna is
called directly, as Hydra's plug-in (1.3.0) requires optuna<3.
"""
