"""Dashboard: views (the data of each page) and pages (HTML, forms and routes)."""
