"""The files and formats of others ↔ ours."""
