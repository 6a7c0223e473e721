"""The tangent kernel of a network under clipping: what Bu et al. (calibration) prove, measured."""
