"""Quick route for single submissions: no worker threads, one commit for all that wait."""
