"""Tables and figures of papers: which runs they need, and the files that those make."""
