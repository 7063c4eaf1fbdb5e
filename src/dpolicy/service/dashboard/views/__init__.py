"""Data of each dashboard page as frozen values; the HTML page and its JSON form show the same."""
