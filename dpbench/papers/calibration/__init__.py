"""The tangent kernel of a network under clipping: the theorems of Bu et al. (calibration)."""
