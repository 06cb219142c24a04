"""The commands: parse, call, print. No logic of their own."""
