/* The kernel for 64-bit ARM, which always has these instructions. */
#include "sets.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "common.h"

#define NAME(x) x##_neon
#include "neon.h"
#include "rows.h"

const Rotate set_neon = rotate_neon;
#else
const Rotate set_neon = 0;
#endif
