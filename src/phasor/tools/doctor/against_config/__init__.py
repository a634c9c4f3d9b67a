"""Against the spec: what each module and each turning makes, beside what the config says."""
