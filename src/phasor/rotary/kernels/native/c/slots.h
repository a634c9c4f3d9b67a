/* Keys rotated into the slots of a cache, and values copied beside them. Part of rows.h. */
static void NAME(to_slots)(const Job *job, NAME(Run) run, const float *table, const int64_t *entry, int64_t number,
                           int64_t start, int64_t tokens) {
  const Tensor *of = &job->of[1];
  const Slots *slots = &job->slots;
  const int64_t size = job->dtype == F32 ? 4 : 2, stride = token_floats(job);
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
    char *y = slots->keys.to + size * (block * slots->keys.block + place * slots->keys.slot);
    char *z = slots->values.to + size * (block * slots->values.block + place * slots->values.slot);
    if (!job->through) run(job, y, key, table, of->heads, size * slots->keys.head, size * of->in_head, 0);
    for (int64_t h = 0; h < of->heads; h++) {
      if (job->through)
        NAME(buffered)(job, &row, run, y + size * h * slots->keys.head, slots->keys.channel,
                       key + size * h * of->in_head, of->in_channel, table);
      char *to = z + size * h * slots->values.head;
      const char *from = value + size * h * slots->head;
      if (slots->channel == 1 && slots->values.channel == 1)
        memcpy(to, from, (size_t)(size * slots->width));
      else
        copy_channels(to, slots->values.channel, from, slots->channel, slots->width, size);
    }
  }
}
