"""What `phasor.diagnose` and `phasor.repair` give, and the losses of a text that rank plausible encodings."""

from .tools.doctor import Check, Diagnosis, RepairReport, by_text, rank_readings

__all__ = ["Check", "Diagnosis", "RepairReport", "by_text", "rank_readings"]
