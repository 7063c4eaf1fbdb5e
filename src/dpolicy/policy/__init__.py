"""Policy text → policy set, with every mistake located."""
