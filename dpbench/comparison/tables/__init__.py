"""From runs to tables: our numbers beside the published ones, with a verdict on each."""
