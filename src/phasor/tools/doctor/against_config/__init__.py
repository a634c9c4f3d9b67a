"""Against the spec: what each module and each rotation gives, compared with the config."""
