/* What is asked of the kernel: q and k of one batch, rotated in one pass over their bytes. Nothing of Python or torch.
 */
#pragma once
#include <stdint.h>

enum { F32, BF16, F16, F64 }; /* dtypes of activations and tables; the last one of tables alone */
enum { MAX_LEAD = 4 };   /* batch axes in front of heads, tokens and channels */
enum { MAX_PAIRS = 512 };
enum { TILE_FLOATS = 1 << 14 }; /* cos and sin of one tile: 64 KiB, which stay in the second cache */
enum { NEAR_FLOATS = 1 << 12 }; /* of a long tile: 16 KiB, which leave half of the first cache to its rows */
enum { SHORT_TILE = 16, LONG_TILE = 32 };
enum { LANES = 32 };      /* values in the widest register: staged tables are padded to it */
enum { MAX_NORM = 8192 }; /* channels of one mean: its buffers are on the stack */
enum { PIECES = 32 };     /* sums for the gradient of a weight: however many threads there are */

typedef struct { /* one tensor in and one out; strides in elements */
  const char *in;
  char *out;
  int64_t heads, passing; /* those after `heads` are copied */
  int64_t in_lead[MAX_LEAD], in_head, in_token, in_channel;
  int64_t out_lead[MAX_LEAD], out_head, out_token, out_channel;
  const char *kept; /* on the way back through a norm: what was normalised; `in` is the gradient */
  int64_t kept_lead[MAX_LEAD], kept_head, kept_token, kept_channel;
} Tensor;

typedef struct { /* cos, sin [(batch,) (heads,) tokens, pairs], of equal strides */
  const char *cos, *sin;
  int dtype;
  int64_t batch, head, token, pair;
} Tables;

typedef struct { /* positions [(axes,) (batch,) tokens], steps [axes, pairs]: 2**64 is one turn */
  const char *at;
  int bytes, axes;
  int64_t axis, batch, token;
  const int64_t *steps;
  float factor;
} Phases;

enum { ONCE = 1, BETWEEN, BEFORE_WEIGHT }; /* where the results of a norm are rounded */

typedef struct {
  int rounding; /* 0: there is no norm */
  int across;   /* one mean over all heads of a token */
  int after;    /* what has rotated is normalised */
  int back;
  float eps;
  const float *weight[2]; /* padded; of one head, or of all; NULL for none */
  double *sums[2];        /* on the way back: [PIECES, channels], for the gradients of the weights */
} Norm;

typedef struct { /* what a number of a float8 cache is multiplied by when it is read */
  int is;         /* 0: the cache is no float8 */
  float one;
  const float *each; /* one for each head; NULL: the same for all */
  int64_t step;
} Scale;

typedef struct {     /* where the second tensor and its values go: a cache of blocks of slots; strides in elements */
  const int64_t *of; /* [batch entries, tokens], -1 for nowhere; NULL: there is no cache */
  int64_t size;      /* slots of a block */
  struct {
    char *to;
    int64_t block, slot, head, channel;
  } keys, values;
  Scale key_scale, value_scale;
  const char *value; /* what goes beside the keys */
  int64_t lead[MAX_LEAD], head, token, channel, width;
  int value_rounding; /* of its norm; 0: it has none */
  float value_eps;
  const float *value_weight; /* padded; NULL for none */
} Slots;

typedef struct {
  Tensor of[2];
  int count; /* tensors in `of` */
  int dtype;
  int wide;     /* rows rotate in float32, whatever their dtype */
  int rounded;  /* every product and sum is rounded to dtype, as models that multiply in it do */
  int streamed; /* stores go past the cache */
  int through;  /* rows go through a buffer: channels are strided */
  int lead;     /* number of batch axes */
  int64_t sizes[MAX_LEAD], batch, tokens, width;
  int64_t tile; /* tokens of a tile, at most; 0: SHORT_TILE */
  int64_t first, pairs, blocks; /* channels [first, first + 2 pairs) rotate, the others are copied */
  int interleaved, permuted;
  float sign; /* -1 rotates back: the transpose, which is the backward pass */
  int per_head;
  Tables tables; /* used unless phases.steps is set */
  Phases phases;
  struct {
    const char *from;
    int64_t bytes;
  } apart[2]; /* where they lie: no result is written there */
  Norm norm;
  Slots slots;
} Job;

/* Tiles: some tokens of one batch entry, whose cos and sin are formed once for all heads of q and k. */
int fits(const Job *job); /* whether those of one token do; else no tile may be asked for */
int64_t tiles_of(const Job *job);
void rotate_tiles(const Job *job, int64_t first, int64_t last);
/* Pieces of the way back through a norm: each has sums of its own. */
void rotate_pieces(const Job *job, int64_t first, int64_t last);

const char *instructions(void);            /* the set in use */
int choose_instructions(const char *name); /* the best one for NULL; 0 if this machine lacks it */
