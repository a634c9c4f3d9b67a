/* The kernel, once for each set of instructions, each in a file of its own that is compiled for that set alone. */
#pragma once
#include "job.h"

/* Tiles [first, last) of a job. 0 where the compiler makes none for this machine's family. */
typedef void (*Rotate)(const Job *job, int64_t first, int64_t last);
extern const Rotate set_portable, set_avx2, set_avx512, set_avx512_bf16, set_neon;
