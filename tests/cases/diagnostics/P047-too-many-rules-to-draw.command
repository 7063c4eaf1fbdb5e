dpolicy rules policy.yaml --graph rules.svg --flat
