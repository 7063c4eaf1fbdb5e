"""A made-up company on a ledger of its own, for people who want to look before they write."""
