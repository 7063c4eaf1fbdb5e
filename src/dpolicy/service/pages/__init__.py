"""The dashboard: pages for people, each with a JSON twin."""
