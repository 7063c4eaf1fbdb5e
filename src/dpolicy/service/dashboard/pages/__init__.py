"""HTML pages of the dashboard: routes, forms, templates and charts."""
