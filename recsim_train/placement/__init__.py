"""Which state and which loop lives where."""
