"""Groups of rules for lists and diagrams at the size of an organisation."""
