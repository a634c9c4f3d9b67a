/* The kernel in C that every compiler turns into what its machine has. */
#include "common.h"
#include "sets.h"

#define NAME(x) x##_portable
#include "portable.h"
#include "rows.h"

const Rotate set_portable = rotate_portable;
