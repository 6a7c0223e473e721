"""Data sets, one module each, all loaded as `dpbench.data.dataset.Data`."""
