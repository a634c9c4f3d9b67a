"""The rotation: phase, layout, spec, scaling, axes, tables, the kernels, and the calls that rotate q and k."""
