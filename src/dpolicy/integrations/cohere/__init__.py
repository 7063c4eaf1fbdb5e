"""Files of Cohere: schema, blocks and requests."""
