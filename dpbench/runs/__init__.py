"""How runs are run: configuration, training, diagnostics, records, figures; one or many."""
