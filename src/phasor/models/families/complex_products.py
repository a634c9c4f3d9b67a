"""Notes for models whose code multiplies complex numbers: where float32 angles do not repeat it to the last bit."""

COMPLEX = "its code multiplies complex numbers, which may differ from products of floats in the last bit"
POLAR = "its code forms cos and sin by torch.polar, which may differ from torch.cos and torch.sin in the last bit"
