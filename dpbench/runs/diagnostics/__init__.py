"""Optional diagnostics of a run, which read private data outside of any accounting.

They explain a run, and no run may depend on them: they change none of its parameters, clips,
generators and noise.
"""
