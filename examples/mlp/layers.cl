/*
 * What a step of training needs beside its products (layers.py enqueues it).
 *
 *   gather            x[i][j]   = images[order[at + i]][j]                        a batch, read by its indexes
 *   cross_entropy     p         = softmax(logits[i]),  l = labels[order[at + i]]
 *                     d[i][j]   = p[j] - (j == l)                                 batch times the gradient
 *                     loss      = mean over i of -log p[l]
 *                     bias[j]  -= rate * sum over i of d[i][j]                    rate = learning rate / batch
 *   backward          d[i][j]   = h[i][j] > 0 ? d[i][j] : 0                       through ReLU
 *                     bias[j]  -= rate * sum over i of d[i][j]
 *   round_weights     half copies of the float weights
 *   classes_of        the index of the largest logit of each row
 *   shuffled_order    order[i] = a permutation of 0 ... count - 1, another one for each key
 *
 * Macros: HALF is 1 if pictures, activations and their gradients are stored as half, else 0 (float). half is
 * only loaded and stored, so no device needs cl_khr_fp16. Sums are float. COLUMNS: columns of a work-item of backward,
 * 1 on a GPU, and as many as fill vectors on a CPU.
 */

#if HALF
typedef half stored;
typedef ushort stored_bits;
#define LOAD(p, i) vload_half(i, p)
#define STORE(value, p, i) vstore_half_rte(value, i, p)
#else
typedef float stored;
typedef uint stored_bits;
#define LOAD(p, i) (p)[i]
#define STORE(value, p, i) (p)[i] = (value)
#endif

/* Work-item (j, i) copies element j of picture i of the batch. */
__kernel void gather(__global const stored_bits *images, __global const int *order, const long at,
                     const int inputs, __global stored_bits *x)
{
  const int j = get_global_id(0);
  const size_t i = get_global_id(1);
  if (j < inputs) x[i * inputs + j] = images[(size_t)order[at + i] * inputs + j];
}

/* -log p[label] of one row; its gradient is stored. The largest logit is subtracted, so that exp stays finite. */
static inline float row_loss(__global const float *logits, const int classes, const int label, __global stored *d,
                             const size_t row)
{
  logits += row * classes;
  float most = logits[0];
  for (int j = 1; j < classes; j++) most = fmax(most, logits[j]);
  float sum = 0;
  for (int j = 0; j < classes; j++) sum += exp(logits[j] - most);
  for (int j = 0; j < classes; j++) STORE(exp(logits[j] - most) / sum - (j == label), d, row * classes + j);
  return log(sum) - (logits[label] - most);
}

/* One work-group: first a row for each work-item, then a column. partial has a float for each work-item. */
__kernel void cross_entropy(__global const float *logits, __global const int *labels, __global const int *order,
                            const long at, const int batch, const int classes, __global stored *d,
                            __global float *loss, const long step, __global float *bias, const float rate,
                            __local float *partial)
{
  const int me = get_local_id(0), items = get_local_size(0);
  float sum = 0;
  for (int i = me; i < batch; i += items) sum += row_loss(logits, classes, labels[order[at + i]], d, i);
  partial[me] = sum;
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (me == 0) {
    for (int k = 1; k < items; k++) sum += partial[k];
    loss[step] = sum / batch;
  }
  for (int j = me; j < classes; j += items) {
    float gradient = 0;
    for (int i = 0; i < batch; i++) gradient += LOAD(d, (size_t)i * classes + j);
    bias[j] -= rate * gradient;
  }
}

/*
 * Work-item (c, r) takes COLUMNS columns from c * COLUMNS on, and of these the rows r, r + R, r + 2 R ..., where R is
 * the work-group's size in dimension 1. The layer begins at element first of h and of d. partial has COLUMNS floats
 * for each work-item.
 */
__kernel void backward(__global const stored *restrict h, __global stored *restrict d, const long first,
                       const int batch, const int columns, __global float *bias, const float rate,
                       __local float *partial)
{
  const int j = get_global_id(0) * COLUMNS;
  const int mine = clamp(columns - j, 0, COLUMNS);
  const int r = get_local_id(1), groups = get_local_size(1), across = get_local_size(0) * COLUMNS;
  float gradient[COLUMNS];
  for (int c = 0; c < COLUMNS; c++) gradient[c] = 0;
  for (int i = r; i < batch; i += groups) {
    const size_t at = first + (size_t)i * columns + j;
    for (int c = 0; c < mine; c++) {
      const float arrived = LOAD(d, at + c), passed = LOAD(h, at + c) > 0 ? arrived : 0;
      STORE(passed, d, at + c);
      gradient[c] += passed;
    }
  }
  __local float *own = partial + r * across + get_local_id(0) * COLUMNS;
  for (int c = 0; c < COLUMNS; c++) own[c] = gradient[c];
  barrier(CLK_LOCAL_MEM_FENCE);
  if (r > 0) return;
  for (int c = 0; c < mine; c++) {
    float sum = own[c];
    for (int k = 1; k < groups; k++) sum += own[k * across + c];
    bias[j + c] -= rate * sum;
  }
}

__kernel void round_weights(__global const float *weights, __global half *rounded, const long count)
{
  const size_t i = get_global_id(0);
  if (i < count) vstore_half_rte(weights[i], i, rounded);
}

__kernel void classes_of(__global const float *logits, const int count, const int classes, __global int *found,
                         const long at)
{
  const int i = get_global_id(0);
  if (i >= count) return;
  const __global float *row = logits + (size_t)i * classes;
  int best = 0;
  for (int j = 1; j < classes; j++) best = row[j] > row[best] ? j : best;
  found[at + i] = best;
}

/*
 * A permutation that each work-item computes for itself: a Feistel network on numbers of 2 * half_bits bits.
 * It maps those numbers one to one, so stepping on until a number is below count maps 0 ... count - 1 one to one
 * ("cycle walking"). 4 ** half_bits < 4 * count, so four steps on average. The technique: Black and Rogaway,
 * "Ciphers with Arbitrary Finite Domains", 2002; for shuffles on GPUs: Mitchell and others, "Bandwidth-Optimal
 * Random Shuffling for GPUs", 2022. The mixing of bits is MurmurHash3's last step (public domain).
 */
static inline uint mixed(uint x)
{
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

__kernel void shuffled_order(const int count, const uint half_bits, const uint key, __global int *order)
{
  const int i = get_global_id(0);
  if (i >= count) return;
  const uint mask = (1u << half_bits) - 1;
  uint number = i;
  do {
    uint left = number >> half_bits, right = number & mask;
    for (uint round = 0; round < 8; round++) {
      const uint next = left ^ (mixed(right ^ mixed(key + round * 0x9e3779b9u)) & mask);
      left = right;
      right = next;
    }
    number = left << half_bits | right;
  } while (number >= (uint)count);
  order[i] = number;
}
