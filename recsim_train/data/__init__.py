"""Sources of examples: Criteo text, and the seeded generator. Streams; bounded memory."""
