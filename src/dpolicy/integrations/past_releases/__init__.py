"""Import of past releases from spreadsheets, lists, folders and registry entries."""
