"""A method against committed baselines, by a frozen protocol: `dpbench challenge`."""
