/* Keys rotated into the slots of a cache, and values beside them; each after a norm, or as float8, where that is asked
   for. Part of rows.h. */

static void NAME(put_float8)(char *to, int64_t step, const float *restrict from, int64_t n, float scale) {
  uint8_t codes[256];
  for (int64_t i = 0; i < n; i += 256) {
    const int64_t now = n - i < 256 ? n - i : 256;
    for (int64_t j = 0; j < now; j++) codes[j] = to_float8(from[i + j] / scale);
    if (step == 1)
      memcpy(to + i, codes, (size_t)now);
    else
      for (int64_t j = 0; j < now; j++) to[(i + j) * step] = (char)codes[j];
  }
}

/* The keys of one token after their norm, or as float8. */
static NOINLINE void NAME(formed_keys)(const Job *job, const Job *row, NAME(Run) run, const float *table, const char *x,
                                       char *y) {
  enum { FEW = 16 };
  NAME(Buffer) z;
  const Slots *slots = &job->slots;
  Tensor of = job->of[1];
  of.out_channel = slots->keys.channel;
  const int eight = slots->key_scale.is;
  const int64_t size = job->dtype == F32 ? 4 : 2, stored = eight ? 1 : size;
  const int64_t pitch = (job->width + LANES - 1) / LANES * LANES, fit = MAX_NORM / pitch, most = fit < FEW ? fit : FEW;
  NAME(Group) g = {.job = job, .row = row, .of = &of, .run = run, .table = table, .weight = job->norm.weight[1]};
  g.floats = eight ? z : NULL, g.pitch = pitch;
  g.next_in = size * of.in_head, g.next_out = size * slots->keys.head;
  for (int64_t h = 0; h < of.heads; h += most) {
    g.heads = of.heads - h < most ? of.heads - h : most;
    g.in = x + h * g.next_in;
    g.out = y + h * stored * slots->keys.head;
    if (job->norm.rounding)
      NAME(norm_group)(&g);
    else {
      NAME(Buffer) wide;
      NAME(get_group)(&g, wide, g.in, g.next_in, of.in_channel);
      NAME(rotate_group)(&g, (char *)z, 4 * pitch, 1, (char *)wide, 4 * pitch, 1);
    }
    for (int64_t i = 0; i < g.heads && eight; i++)
      NAME(put_float8)(g.out + i * slots->keys.head, slots->keys.channel, z + i * pitch, job->width,
                       scale_of(&slots->key_scale, h + i));
  }
}

/* One head of the values of one token after its norm, or as float8. */
static NOINLINE void NAME(formed_value)(const Job *job, int64_t head, const char *from, char *to) {
  NAME(Buffer) x;
  const Slots *slots = &job->slots;
  const int64_t n = slots->width;
  const int rounding = slots->value_rounding, dtype = job->dtype;
  NAME(get)(x, from, slots->channel, n, dtype);
  if (rounding) {
    memset(x + n, 0, LANES * sizeof *x);
    const F r = NAME(all)(NAME(root)(x, n, slots->value_eps));
    for (int64_t j = 0; j < n; j += NAME(W)) {
      F v = NAME(load)(x + j) * r;
      if (rounding == BEFORE_WEIGHT && dtype != F32) v = NAME(round_to)(v, dtype);
      if (slots->value_weight) v = v * NAME(load)(slots->value_weight + j);
      if (rounding != ONCE && dtype != F32) v = NAME(round_to)(v, dtype);
      NAME(store)(x + j, v, 0);
    }
  }
  if (slots->value_scale.is)
    NAME(put_float8)(to, slots->values.channel, x, n, scale_of(&slots->value_scale, head));
  else
    NAME(put)(to, slots->values.channel, x, n, dtype);
}

static void NAME(to_slots)(const Job *job, NAME(Run) run, const float *table, const int64_t *entry, int64_t number,
                           int64_t start, int64_t tokens) {
  const Tensor *of = &job->of[1];
  const Slots *slots = &job->slots;
  const int64_t size = job->dtype == F32 ? 4 : 2, stride = token_floats(job);
  const int forms_keys = job->norm.rounding || slots->key_scale.is,
            forms_values = slots->value_rounding || slots->value_scale.is;
  const int64_t of_key = slots->key_scale.is ? 1 : size, of_value = slots->value_scale.is ? 1 : size;
  const char *key = of->in + size * start * of->in_token, *value = slots->value + size * start * slots->token;
  for (int i = 0; i < job->lead; i++) {
    key += size * entry[i] * of->in_lead[i];
    value += size * entry[i] * slots->lead[i];
  }
  Job row = *job;
  row.first = 0;
  row.width = 2 * job->pairs;
  for (int64_t i = 0; i < tokens; i++, key += size * of->in_token, value += size * slots->token, table += stride) {
    const int64_t slot = slots->of[number * job->tokens + start + i];
    if (slot < 0) continue;
    const int64_t block = slot / slots->size, place = slot % slots->size;
    char *y = slots->keys.to + of_key * (block * slots->keys.block + place * slots->keys.slot);
    char *z = slots->values.to + of_value * (block * slots->values.block + place * slots->values.slot);
    if (forms_keys)
      NAME(formed_keys)(job, &row, run, table, key, y);
    else if (!job->through)
      run(job, &(Walk){y, key, table, of->heads, size * slots->keys.head, size * of->in_head, 0, 1});
    for (int64_t h = 0; h < of->heads; h++) {
      if (job->through && !forms_keys)
        NAME(buffered)(job, &row, run, y + size * h * slots->keys.head, slots->keys.channel,
                       key + size * h * of->in_head, of->in_channel, table);
      char *to = z + of_value * h * slots->values.head;
      const char *from = value + size * h * slots->head;
      if (forms_values)
        NAME(formed_value)(job, h, from, to);
      else if (slots->channel == 1 && slots->values.channel == 1)
        memcpy(to, from, (size_t)(size * slots->width));
      else
        copy_channels(to, slots->values.channel, from, slots->channel, slots->width, size);
    }
  }
}
