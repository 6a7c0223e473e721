"""From a ledger to an epsilon: accountants, and what they rest on for noise on each coordinate."""
