"""HTTP client for a dpolicy server, with the calls, values and errors of `DecisionPoint`."""
