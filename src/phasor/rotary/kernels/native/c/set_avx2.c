/* The kernel for x86-64 with AVX2 and F16C. setup.py compiles this file with the flags that turn them on. */
#include "sets.h"

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>

#include "common.h"

#define NAME(x) x##_avx2
#include "avx2.h"
#include "rows.h"

const Rotate set_avx2 = rotate_avx2;
#else
const Rotate set_avx2 = 0;
#endif
