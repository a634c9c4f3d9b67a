/* The kernel for x86-64 with AVX-512 F, BW, DQ and VL; what fills no vectors of sixteen goes eight at a time. setup.py
   compiles this file with the flags that turn them on. */
#include "sets.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <immintrin.h>

#include "common.h"

#define NAME(x) x##_of_eight
#include "avx2.h"
#include "pairs.h"
#include "eights.h"
#undef F
#undef NAME
#define NAME(x) x##_avx512
#define TAIL(x) x##_of_eight
#include "avx512.h"
#include "rows.h"

#ifdef __AVX512BF16__
const Rotate set_avx512_bf16 = rotate_avx512;
#else
const Rotate set_avx512 = rotate_avx512;
#endif
#else
const Rotate set_avx512 = 0;
#endif
