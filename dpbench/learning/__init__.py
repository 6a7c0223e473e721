"""What is trained: data sets, models, and the metrics of a result."""
