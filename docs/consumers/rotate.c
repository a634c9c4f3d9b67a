/* Rotary encoding in C, tested against the golden pack:  cc rotate.c -I../golden -lm -o rotate && ./rotate [MODEL]
   Replace `tables` and `turn` by code of your own; exit code 0: right, 1: wrong. Public domain (CC0-1.0). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "phasor_golden.h"

#define MOST 1024 /* pairs of a head */

/* cos and sin of every pair at the position of one token: the angle is a sum over axes, in float64 */
static void tables(const phasor_rotation *r, const double *rates, int token, double *cosine, double *sine) {
  for (int i = 0; i < r->pairs; i++) {
    double angle = 0;
    for (int axis = 0; axis < r->axes; axis++)
      angle += r->positions[axis * PHASOR_GOLDEN_TOKENS + token] * rates[axis * r->pairs + i];
    cosine[i] = r->factor * cos(angle);
    sine[i] = r->factor * sin(angle);
  }
}

/* One head: channels first[i] and second[i] are a pair; all others pass. (c, s) turn the first member of each pair,
   (c2, s2) the second: the same in almost all models. */
static void turn(const phasor_rotation *r, const float *x, float *out, const double *c, const double *s,
                 const double *c2, const double *s2) {
  memcpy(out, x, r->head_dim * sizeof *out);
  for (int i = 0; i < r->pairs; i++) {
    double a = x[r->first[i]], b = x[r->second[i]];
    out[r->first_written[i]] = (float)(a * c[i] - b * s[i]);
    out[r->second_written[i]] = (float)(a * s2[i] + b * c2[i]);
  }
}

static int wrong(const char *what, const phasor_rotation *r, int at, double got, double expected, double allowed) {
  if (fabs(got - expected) <= allowed * r->factor) return 0;
  printf("%s: %s[%d] must be %.9g, got %.9g\n", r->describe, what, at, expected, got);
  return 1;
}

static int check(const phasor_rotation *r) {
  static double c[MOST], s[MOST], c2[MOST], s2[MOST];
  static float out[4 * MOST];
  if (r->pairs > MOST || r->head_dim > 4 * MOST) return printf("%s: raise MOST\n", r->describe), 1;
  for (int token = PHASOR_GOLDEN_TOKENS - 1; token >= 0; token--) {
    tables(r, r->rates, token, c, s);
    tables(r, r->rates_second ? r->rates_second : r->rates, token, c2, s2);
    for (int i = 0, at = token * r->pairs; i < r->pairs; i++, at++)
      if (wrong("cos", r, at, c[i], r->cos[at], PHASOR_GOLDEN_TOLERANCE_COS_SIN) ||
          wrong("sin", r, at, s[i], r->sin[at], PHASOR_GOLDEN_TOLERANCE_COS_SIN)) return 1;
    if (token == PHASOR_GOLDEN_TURNED) turn(r, phasor_in, out, c, s, c2, s2);
  }
  for (int at = 0; at < r->head_dim; at++)
    if (wrong("out", r, at, out[at], r->out[at], PHASOR_GOLDEN_TOLERANCE_OUT)) return 1;
  return 0;
}

int main(int count, char **words) {
  int seen = 0, bad = 0;
  for (int m = 0; m < PHASOR_GOLDEN_MODELS; m++)
    if (count < 2 || !strcmp(words[1], phasor_models[m].model)) seen++, bad += check(&phasor_rotations[phasor_models[m].rotation]);
  printf("%d rotations of models, %d wrong\n", seen, bad);
  return !seen || bad;
}
