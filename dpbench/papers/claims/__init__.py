"""Epsilons that somebody printed, recounted by the ledger and the accountants of the suite."""
