"""The methods, one module each, all built as `dpbench.mechanism.method.Method`."""
