"""The ledger of accesses to private data, and the accountants that turn it into an epsilon."""
