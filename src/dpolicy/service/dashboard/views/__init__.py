"""A state → what a page shows, as frozen values: the page and its JSON twin say the same."""
