"""Reading and checking what users write: experiments, cluster profiles, quantities."""
