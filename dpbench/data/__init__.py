"""The data sets: one module each, all read into `dpbench.data.dataset.Data`."""
