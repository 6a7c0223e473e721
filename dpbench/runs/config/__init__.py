"""From a command line to the plain configuration of a run; only this package imports Hydra."""
