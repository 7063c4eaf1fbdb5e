"""Reports for people who do not run commands: board report, dossier and public statement."""
