"""Models as shapes: what each operation costs and how large its result is. No torch."""
