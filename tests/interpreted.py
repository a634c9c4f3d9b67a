"""Triton's interpreter as these tests need it: it rounds as a GPU does, and has few programs to run."""

import torch


def round_as_a_gpu_does() -> None:
    """It cuts float32 off to bfloat16, and changes small numbers on the way back; torch does not."""
    import triton.language as tl
    from triton.runtime import interpreter

    theirs, dtypes = interpreter._convert_float, {tl.float32: torch.float32, tl.bfloat16: torch.bfloat16}

    def convert(data, source, target, rounding):
        if {source, target} != set(dtypes):
            return theirs(data, source, target, rounding)
        bits = torch.int32 if target == tl.float32 else torch.uint16
        given = torch.from_numpy(data.copy()).view(dtypes[source])
        return given.to(dtypes[target]).view(bits).numpy().view(f"uint{target.primitive_bitwidth}")

    interpreter._convert_float = convert


# Names in phasor.rotary.kernels.triton.launch: it takes as long for a program of one row as for one of a thousand.
FEW_PROGRAMS = {"TILE": 2**14, "ENOUGH": 1}
