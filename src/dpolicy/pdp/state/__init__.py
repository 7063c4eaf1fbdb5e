"""The ledger state: releases, charge groups and totals, folded from the records."""
