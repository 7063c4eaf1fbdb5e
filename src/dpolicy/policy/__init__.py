"""Policy language: grammar, parser, checker and formatter."""
