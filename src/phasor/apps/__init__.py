"""What is built on the library: the lab, span recognition, the demo; and `runs`, the folders that they keep."""
