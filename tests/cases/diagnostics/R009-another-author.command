dpolicy submit release.yaml --by ben --ledger ledger.db
