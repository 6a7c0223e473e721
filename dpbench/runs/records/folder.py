"""The subfolders of a results folder, which `results_dir` names."""

RUNS = "runs"
"""A record for each finished run, named by its digest."""

CHECKPOINTS = "checkpoints"
"""A folder for each run under way, with its lock; gone when it has ended."""

LAUNCHED = "launched"
"""What a cluster runs: scripts, and the output of its jobs."""

MODELS = "models"
"""The parameters of runs with save_model=true, by the digest of their record."""

SWEEPS = "sweeps"
"""The digests of a sweep's runs, a text file each."""

FAILURES = "failures"
"""Why runs of a sweep failed, a text file each."""

SEARCH = "search"
"""The pages of searches, and the keys of private ones."""

CHALLENGES = "challenges"
"""The pages of entries to challenges, and all records behind each."""

TABLES = "tables"
"""Tables and figures of papers, each with the records behind it."""

AUDITS = "audits"
"""The rows of an interrupted table of audits."""

TRACKING = "tracking"
"""What local trackers have written."""
