"""Where examples come from: Criteo text, and the seeded generator. Streams; bounded memory."""
