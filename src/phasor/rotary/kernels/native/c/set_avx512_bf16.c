/* The same for x86-64 that rounds to bfloat16 itself. setup.py compiles this file with one flag more. */
#include "sets.h"

#if defined(__AVX512BF16__)
#include "set_avx512.c"
#else
const Rotate set_avx512_bf16 = 0;
#endif
