"""The suite's own metrics: each `Metric` of a module is named by its constant, in small letters.

Like a plug-in's, a module imports neither torch nor NumPy before a metric is computed.
"""
