/* How large staged tables and tiles are. */
#pragma once
#include "job.h"

/* The length of a staged table: whole registers, whichever are used. */
static inline int64_t staged_of(int64_t pairs, int twice) {
  return ((twice ? 2 * pairs : pairs) + LANES - 1) / LANES * LANES;
}
static inline int dtype_of_rows(const Job *job) { return job->wide ? F32 : job->dtype; }
static inline int are_twice(const Job *job) {
  return job->interleaved && !job->permuted && dtype_of_rows(job) != BF16;
}
static inline int64_t pairs_of_block(const Job *job) { /* a division takes as long as a head of one token */
  return job->blocks == 1 ? job->pairs : job->pairs / job->blocks;
}
static inline int in_double(const Job *job) { return !job->phases.steps && job->tables.dtype == F64; }
static inline int64_t token_floats(const Job *job) {
  if (in_double(job)) return 4 * staged_of(job->pairs, 0);
  return 2 * job->blocks * staged_of(pairs_of_block(job), are_twice(job));
}
/* Tokens of one tile, as many as its tables have room for. */
static inline int64_t tile_tokens(const Job *job) {
  const int64_t each = token_floats(job), fit = TILE_FLOATS / each, near = NEAR_FLOATS / each;
  const int64_t most = job->tile > near ? near : job->tile, least = fit < SHORT_TILE ? fit : SHORT_TILE;
  return most > least ? most : least;
}
