"""The methods that tests make steps of."""

from dpbench.step.methods.clipping_errors import direction_error, magnitude_error
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_f import dpsgd_f
from dpbench.step.methods.dpsgd_global import dpsgd_global, dpsgd_global_adapt
from dpbench.step.methods.sgd import sgd
from tests.problems import problem

ADAPT = dpsgd_global_adapt(0.5, 3.0, 0.8, 0.1, 2.0, "corrected")


METHODS = {
    "sgd": sgd(),
    "dpsgd": dpsgd(0.5, "corrected"),
    "dpsgd_global": dpsgd_global(0.5, 3.0, "corrected"),
    "magnitude_error": magnitude_error(0.5),
    "direction_error": direction_error(0.5),
    "dpsgd_global_adapt": ADAPT,
    "dpsgd_f": dpsgd_f(0.5, 2.0, "corrected").bind(problem()),
}
