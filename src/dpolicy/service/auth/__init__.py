"""Authentication, authorization and redaction."""
