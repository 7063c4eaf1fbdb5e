"""How a policy is tested: cases are data, and the project's own behaviour tests use them too."""
