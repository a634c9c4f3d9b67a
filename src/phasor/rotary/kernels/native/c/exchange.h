/* What reading a tensor needs of DLPack's C exchange (version 1, a fixed binary layout): torch 2.10 and newer hands out
   a table of C functions, torch.Tensor.__dlpack_c_exchange_api__, so that no header or library of torch is needed. */
#pragma once
#include <stdint.h>

typedef struct {
  char *data;
  struct {
    int32_t type, index;
  } device; /* type 1 is the CPU */
  int32_t rank;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;                  /* code 0 integer, 2 float, 4 bfloat */
  int64_t *shape, *strides; /* strides in elements */
  uint64_t offset;
} View;

typedef struct Exchange {
  struct {
    uint32_t major, minor;
  } version;
  struct Exchange *older;
  void *unused[3];
  int (*view)(void *tensor, View *out); /* borrows: good while the tensor lives */
  void *stream;
} Exchange;
