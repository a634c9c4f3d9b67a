"""What stands below everything: checks of numbers, files written whole, locks, processes, tracing."""
