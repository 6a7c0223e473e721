"""Audits of other libraries, in their own code."""
