"""Applications of the library: the lab, span recognition, the demo, the benchmarks, the atlas and the explorer; and
`run_folder`, where trainings keep their files."""
