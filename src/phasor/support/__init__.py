"""The lowest floor, used by all others: checks of numbers, files written whole, locks, processes, tracing."""
