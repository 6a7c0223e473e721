"""Audits of one's own code: deterministic checks, then attacks, and one page of what they found."""
