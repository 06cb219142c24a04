"""The simulated world: a strategy's effects answered with modelled time. No torch."""
