"""Views → pages for people: templates, drawings and forms."""
