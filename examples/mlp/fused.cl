/* fused: many steps of training in one launch. Work-groups meet between layers and go on.
 *
 * Layer l computes A[l] = relu(A[l - 1] W[l] + bias); A[-1] is the batch X; the last layer has no relu. D[l] is the
 * gradient of the loss by what goes into that relu. Each work-group owns tiles of TILE columns of every hidden layer.
 *
 *   forward    A[l] of my columns        = relu(sum over k of A[l - 1][k] W[l][k, mine])        then meet
 *   output     logits, softmax, D[last]: every work-group computes all of it, from all of A
 *   backward   D[l - 1] of my columns    = (sum over i of D[l][i] W[l][mine, i]) where A[l - 1] > 0    then meet
 *   update     W[l][k, mine] -= rate * sum over b of A[l - 1][b, k] D[l][b, mine]
 *              W[l][mine, i] -= rate * sum over b of D[l][b, i] A[l - 1][b, mine]
 *
 * So a work-group needs W[l] by its columns for `forward` and W[l + 1] by its rows for `backward`. It keeps both, and
 * updates both by the same sums. Nobody else reads or writes them, so weights never cross between work-groups.
 *
 * A and D do. Each is written twice: `across` [k][b], read by sums over k, where a work-item has its own b, and `along`
 * [b][k], read by sums over b, where a work-item has its own k. So neighbours read neighbours. Or, if STAGE, once.
 *
 * What is written while others may still read the old one has several places: A two, X three (docs/mlp_fused.md).
 * Padding of columns and pictures is zero and stays zero.
 *
 * Sums are cut by the sizes and by LOCAL, not by the number of work-groups, so the weights do not depend on it.
 *
 * Macros: LAYERS, all of them; OUTPUTS, classes; INPUTS, of a picture; BATCH and PICTURES, the batch padded; tables by
 * layer in braces: PITCHES (inputs, then columns of each hidden layer, padded) and the *_AT, where a part begins, in
 * floats. TILE; LOCAL; VB, pictures and VW, weights that a work-item of `multiply` takes at once; VK, weights that one of
 * `update` takes at once; IN_FLIGHT, such loads in a row; HOLD 1: weights stay in local memory; STAGE 1 (with HOLD 1): what
 * others wrote is copied to local memory, once a step (fused_stage.cl); COHERENT 0, caches are coherent, 1, volatile
 * loads pass the first cache, 2, the same by PTX; MEET 0, a counter, 1, the same by PTX, 2, a flag for each work-group;
 * UNROLL_LAYERS 1: code for each layer; CLOCKS 1: times the parts of a step.
 */
#include "occupancy.cl"

#define LANES (PICTURES / VB)
#define SLICES (LOCAL > LANES ? LOCAL / LANES : 1)
#define HIDDEN (LAYERS - 1)
#define MOST_COLUMNS (TILE > OUTPUTS ? TILE : OUTPUTS)
#if UNROLL_LAYERS
#define LAYER_LOOP UNROLL
#else
#define LAYER_LOOP _Pragma("unroll 1")
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define float1 float
#define VECTOR(n) JOIN(float, n)
typedef VECTOR(VB) pictures_t; /* values of neighbouring pictures */
typedef VECTOR(VW) weights_t;  /* neighbouring weights of a column */
typedef VECTOR(VK) inputs_t;   /* values, or weights, of neighbouring inputs */
#if HOLD
#define HELD __local
#else
#define HELD __global
#endif

__constant int pitches[] = PITCHES;
__constant int columns_at[] = COLUMNS_AT, rows_at[] = ROWS_AT, bias_at[] = BIAS_AT; /* in `store` */
__constant int a_at[] = A_AT, d_at[] = D_AT;                                        /* in `exchange` */
#if HOLD
__constant int held_columns_at[] = HELD_COLUMNS_AT, held_rows_at[] = HELD_ROWS_AT, held_bias_at[] = HELD_BIAS_AT;
__constant int held_a_at[] = HELD_A_AT, held_d_at[] = HELD_D_AT;
#endif
#if STAGE
__constant int staged_at[] = STAGED_AT; /* of X, then of A of each hidden layer */
#endif

typedef struct {
  __global float *store;             /* all weights */
  __global float *exchange;          /* X, A, D */
  volatile __global uint *meeting;
  HELD float *held;                  /* what only this work-group uses */
  __local float *partial;            /* [SLICES][columns][PICTURES] */
#if STAGE
  __local float *staged;             /* copies of X, each A, and one D */
#endif
  uint group, groups, met;
  int parity;                        /* of the step: which of two places of A */
} Work;

/* ---- what work-groups give each other ---- */

/* Reads past caches that do not see what other work-groups write. */
#if COHERENT == 2
INLINE float load_1(const __global float *p)
{
  float x;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
  return x;
}
INLINE float2 load_2(const __global float *p)
{
  float2 x;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(p) : "memory");
  return x;
}
INLINE float4 load_4(const __global float *p)
{
  float4 x;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(p) : "memory");
  return x;
}
#define LOAD(n, p) JOIN(load_, n)(p)
#elif COHERENT == 1
#define LOAD(n, p) (*(const volatile __global VECTOR(n) *)(p))
#else
#define LOAD(n, p) (*(const __global VECTOR(n) *)(p))
#endif

#include "fused_stage.cl"

/* Says that this work-group has written what others wait for. */
INLINE void arrive(Work *work)
{
  work->met += 1;
  SYNC();
  if (get_local_id(0) == 0) {
#if MEET == 1
    asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%0], 1;" : : "l"(work->meeting + ARRIVALS) : "memory");
#elif MEET == 2
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    atomic_xchg(work->meeting + FLAGS + work->group, work->met);
#else
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    atomic_inc(work->meeting + ARRIVALS);
#endif
  }
}

/* Waits until all work-groups have arrived as often as this one. */
INLINE void wait(Work *work)
{
#if MEET == 2
  for (uint g = get_local_id(0); g < work->groups; g += LOCAL)
    while (work->meeting[FLAGS + g] < work->met) {}
  mem_fence(CLK_GLOBAL_MEM_FENCE);
#else
  if (get_local_id(0) == 0) {
    const uint all = work->met * work->groups;
#if MEET == 1
    uint arrived;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(work->meeting + ARRIVALS) : "memory");
    } while (arrived < all);
#else
    while (work->meeting[ARRIVALS] < all) {}
    mem_fence(CLK_GLOBAL_MEM_FENCE);
#endif
  }
#endif
  SYNC();
#if LOCAL == 1
  atomic_add(work->meeting + ARRIVALS, 0); /* no compiler moves loads above it */
#endif
}

/* ---- where things lie ---- */

#define BOTH(pitch) (2 * (pitch) * PICTURES) /* floats of a matrix, across and along */
#define ALONG(matrix, pitch) ((matrix) + (pitch) * PICTURES)

INLINE __global float *place_of_a(const Work *work, const int layer)
{
  return work->exchange + a_at[layer] + work->parity * BOTH(pitches[layer + 1]);
}
/* The same, of the step before. */
INLINE __global float *place_of_former_a(const Work *work, const int layer)
{
  return work->exchange + a_at[layer] + (1 - work->parity) * BOTH(pitches[layer + 1]);
}
INLINE __global float *place_of_d(const Work *work, const int layer) { return work->exchange + d_at[layer]; }
INLINE __global float *place_of_x(const Work *work, const int step)
{
  return work->exchange + X_AT + step % 3 * BOTH(pitches[0]);
}
/* What a layer reads: X, or A of the layer before. */
INLINE __global float *place_of_input(const Work *work, const int layer, const int step)
{
  return layer == 0 ? place_of_x(work, step) : place_of_a(work, layer - 1);
}
#if STAGE
#define SEEN_INPUT(layer, from) ((void)(from), work->staged + staged_at[layer])
#define SEEN_D(layer) (work->staged + STAGED_D_AT)
#define FOR_UPDATE(seen, pitch) (seen)
#else
#define SEEN_INPUT(layer, from) (from)
#define SEEN_D(layer) place_of_d(work, layer)
#define FOR_UPDATE(seen, pitch) ALONG(seen, pitch)
#endif
#define FOR_MY_TILES(t, layer) \
  for (int t = (int)work->group; t < pitches[(layer) + 1] / TILE; t += (int)work->groups)

#if HOLD
#define SLOT(tile) ((tile) / (int)work->groups)
#define MY_COLUMNS(layer, tile) (work->held + held_columns_at[layer] + SLOT(tile) * TILE * pitches[layer])
#define MY_ROWS(layer, tile) (work->held + held_rows_at[layer] + SLOT(tile) * TILE * pitches[(layer) + 1])
#define MY_BIAS(layer, tile) (work->held + held_bias_at[layer] + SLOT(tile) * TILE)
#define MY_A(layer, tile) (work->held + held_a_at[layer] + SLOT(tile) * TILE * PICTURES)
#define MY_D(layer, tile) (work->held + held_d_at[layer] + SLOT(tile) * TILE * PICTURES)
#define MY_LAST (work->held + HELD_LAST_AT)
#else
#define MY_COLUMNS(layer, tile) (work->store + columns_at[layer] + (tile) * TILE * pitches[layer])
#define MY_ROWS(layer, tile) (work->store + rows_at[layer] + (tile) * TILE * pitches[(layer) + 1])
#define MY_BIAS(layer, tile) (work->store + bias_at[layer] + (tile) * TILE)
#define MY_A(layer, tile) (place_of_a(work, layer) + (tile) * TILE * PICTURES)
#define MY_D(layer, tile) (place_of_d(work, layer) + (tile) * TILE * PICTURES)
#define MY_LAST (work->store + COPIES_AT + (int)work->group * LAST_FLOATS)
#endif
/* The last layer: its columns, their bias, then D[last]. */
#define MY_LAST_BIAS (MY_LAST + OUTPUTS * pitches[HIDDEN])
#define MY_LAST_D (MY_LAST + LAST_D_AT)

/* ---- the sums: multiply, sum_of_slices, update, update_bias ---- */

#define COLUMNS TILE
#define AT_ONCE TILE
#define SUM(name) name##_tile
#include "fused_sums.cl"
#define COLUMNS OUTPUTS
#define AT_ONCE (OUTPUTS % 2 ? 1 : 2)
#define SUM(name) name##_last
#include "fused_sums.cl"

/* ---- a step ---- */

/* Writes one element of a tile where all work-groups read it, and where this one keeps it. */
INLINE void publish(__global float *matrix, const int pitch, HELD float *mine, const int tile, const int j, const int b,
    const float value)
{
  matrix[(tile * TILE + j) * PICTURES + b] = value;
#if !STAGE
  ALONG(matrix, pitch)[b * pitch + tile * TILE + j] = value;
#endif
#if HOLD
  mine[j * PICTURES + b] = value;
#endif
}

/* Copies what a layer reads, or D of a layer, to local memory, if STAGE. SYNC ends it. */
INLINE void stage_input(Work *work, const int layer, const __global float *from)
{
#if STAGE
  stage(SEEN_INPUT(layer, from), from, pitches[layer]);
#endif
}
INLINE void stage_d(Work *work, const int layer)
{
#if STAGE
  stage(SEEN_D(layer), place_of_d(work, layer), pitches[layer + 1]);
#endif
}

/* My columns of A[layer]. */
INLINE void forward(Work *work, const int layer, const __global float *from)
{
  const int pitch = pitches[layer + 1];
  SYNC();
  stage_input(work, layer, from);
  FOR_MY_TILES(tile, layer) {
    SYNC();
    multiply_tile(work->partial, SEEN_INPUT(layer, from), MY_COLUMNS(layer, tile), pitches[layer]);
    SYNC();
    for (int at = get_local_id(0); at < TILE * PICTURES; at += LOCAL) {
      const int j = at / PICTURES, b = at % PICTURES;
      const float z = sum_of_slices_tile(work->partial, j, b) + MY_BIAS(layer, tile)[j];
      publish(place_of_a(work, layer), pitch, MY_A(layer, tile), tile, j, b, fmax(z, 0.0f));
    }
  }
}

/* Logits of the batch, then in their place D[last] = (softmax - label) for pictures, 0 for padding; the loss of each
 * picture. `labels`: of this batch. */
INLINE void output(Work *work, const __local int *labels, __local float *loss)
{
  HELD float *const d = MY_LAST_D;
  const __global float *const from = place_of_a(work, HIDDEN - 1);
  stage_input(work, HIDDEN, from);
  SYNC();
  multiply_last(work->partial, SEEN_INPUT(HIDDEN, from), MY_LAST, pitches[HIDDEN]);
  SYNC();
  for (int at = get_local_id(0); at < OUTPUTS * PICTURES; at += LOCAL) {
    const int i = at / PICTURES, b = at % PICTURES;
    d[at] = sum_of_slices_last(work->partial, i, b) + MY_LAST_BIAS[i];
  }
  SYNC();
  for (int b = get_local_id(0); b < PICTURES; b += LOCAL) {
    const int real = b < BATCH, label = real ? labels[b] : 0;
    const float logit = d[label * PICTURES + b];
    float values[OUTPUTS]; /* in registers: the logits, then their exponentials */
    UNROLL for (int i = 0; i < OUTPUTS; ++i) values[i] = d[i * PICTURES + b];
    float most = values[0], sum = 0;
    UNROLL for (int i = 1; i < OUTPUTS; ++i) most = fmax(most, values[i]);
    UNROLL for (int i = 0; i < OUTPUTS; ++i) sum += values[i] = exp(values[i] - most);
    loss[b] = real ? log(sum) + most - logit : 0;
    const float scale = real ? 1 / sum : 0;
    UNROLL for (int i = 0; i < OUTPUTS; ++i)
      d[i * PICTURES + b] = values[i] * scale - (real && i == label ? 1.0f : 0.0f);
  }
  SYNC();
}

/* My columns of D of the last hidden layer, from D[last]. */
INLINE void backward_from_output(Work *work)
{
  const int layer = HIDDEN - 1, pitch = pitches[HIDDEN];
  FOR_MY_TILES(tile, layer)
    for (int at = get_local_id(0); at < TILE * PICTURES; at += LOCAL) {
      const int j = at / PICTURES, b = at % PICTURES;
      float sum = 0;
      UNROLL for (int i = 0; i < OUTPUTS; ++i)
        sum += MY_LAST_D[i * PICTURES + b] * MY_LAST[i * pitch + tile * TILE + j];
      const float value = MY_A(layer, tile)[j * PICTURES + b] > 0 ? sum : 0;
      publish(place_of_d(work, layer), pitch, MY_D(layer, tile), tile, j, b, value);
    }
}

/* My columns of D[layer], from all of D[layer + 1]. */
INLINE void backward(Work *work, const int layer)
{
  const int pitch = pitches[layer + 1];
  stage_d(work, layer + 1);
  FOR_MY_TILES(tile, layer) {
    SYNC();
    multiply_tile(work->partial, SEEN_D(layer + 1), MY_ROWS(layer + 1, tile), pitches[layer + 2]);
    SYNC();
    for (int at = get_local_id(0); at < TILE * PICTURES; at += LOCAL) {
      const int j = at / PICTURES, b = at % PICTURES;
      const float sum = sum_of_slices_tile(work->partial, j, b);
      const float value = MY_A(layer, tile)[j * PICTURES + b] > 0 ? sum : 0;
      publish(place_of_d(work, layer), pitch, MY_D(layer, tile), tile, j, b, value);
    }
  }
}

INLINE void update_columns(Work *work, const int layer, const __global float *from, const float rate)
{
  const SEEN float *const input = FOR_UPDATE(SEEN_INPUT(layer, from), pitches[layer]);
  FOR_MY_TILES(tile, layer) {
    update_tile(MY_COLUMNS(layer, tile), input, MY_D(layer, tile), pitches[layer], rate);
    update_bias_tile(MY_BIAS(layer, tile), MY_D(layer, tile), rate);
  }
}

/* The rows of W[layer] that my columns of the layer before need. */
INLINE void update_rows(Work *work, const int layer, const float rate)
{
  const int pitch = pitches[layer + 1];
  const SEEN float *const d = FOR_UPDATE(SEEN_D(layer), pitch);
  FOR_MY_TILES(tile, layer - 1) update_tile(MY_ROWS(layer, tile), d, MY_A(layer - 1, tile), pitch, rate);
}

/* The last layer, with A and D[last] of the step before: until then nobody needs it. */
INLINE void update_output(Work *work, const float rate)
{
  const int pitch = pitches[HIDDEN];
  const __global float *const from = place_of_former_a(work, HIDDEN - 1);
  update_last(MY_LAST, FOR_UPDATE(SEEN_INPUT(HIDDEN, from), pitch), MY_LAST_D, pitch, rate);
  update_bias_last(MY_LAST_BIAS, MY_LAST_D, rate);
}

/* My share of a batch, from the pictures. `order`: of this batch. */
INLINE void gather(Work *work, __global float *x, const __global float *images, const __global int *order)
{
#if !STAGE
  __global float *const along = ALONG(x, pitches[0]);
#endif
  const int stride = (int)work->groups * LOCAL;
  for (int at = (int)work->group * LOCAL + (int)get_local_id(0); at < INPUTS * PICTURES; at += stride) {
    const int k = at / PICTURES, b = at % PICTURES;
    if (b < BATCH) {
      const float value = images[(size_t)order[b] * INPUTS + k];
      x[at] = value;
#if !STAGE
      along[b * pitches[0] + k] = value;
#endif
    }
  }
}

/* ---- a launch ---- */

INLINE void copy_in(HELD float *to, const __global float *from, const int count)
{
  for (int at = get_local_id(0); at < count; at += LOCAL) to[at] = from[at];
}
INLINE void copy_out(__global float *to, const HELD float *from, const int count)
{
  for (int at = get_local_id(0); at < count; at += LOCAL) to[at] = from[at];
}

#define LAST_WEIGHTS (OUTPUTS * pitches[HIDDEN] + OUTPUTS)

INLINE void fetch_weights(Work *work)
{
  copy_in(MY_LAST, work->store + LAST_AT, LAST_WEIGHTS);
#if HOLD
  LAYER_LOOP for (int layer = 0; layer < HIDDEN; ++layer)
    FOR_MY_TILES(tile, layer) {
      const int columns = TILE * pitches[layer], rows = TILE * pitches[layer + 2 < LAYERS ? layer + 2 : 0];
      copy_in(MY_COLUMNS(layer, tile), work->store + columns_at[layer] + tile * columns, columns);
      copy_in(MY_BIAS(layer, tile), work->store + bias_at[layer] + tile * TILE, TILE);
      if (layer + 1 < HIDDEN) copy_in(MY_ROWS(layer + 1, tile), work->store + rows_at[layer + 1] + tile * rows, rows);
    }
#endif
  SYNC();
}

INLINE void keep_weights(Work *work)
{
  SYNC();
  if (work->group == 0) copy_out(work->store + LAST_AT, MY_LAST, LAST_WEIGHTS);
#if HOLD
  LAYER_LOOP for (int layer = 0; layer < HIDDEN; ++layer)
    FOR_MY_TILES(tile, layer) {
      const int columns = TILE * pitches[layer], rows = TILE * pitches[layer + 2 < LAYERS ? layer + 2 : 0];
      copy_out(work->store + columns_at[layer] + tile * columns, MY_COLUMNS(layer, tile), columns);
      copy_out(work->store + bias_at[layer] + tile * TILE, MY_BIAS(layer, tile), TILE);
      if (layer + 1 < HIDDEN) copy_out(work->store + rows_at[layer + 1] + tile * rows, MY_ROWS(layer + 1, tile), rows);
    }
#endif
}

#if CLOCKS
INLINE long clock_now(void)
{
  long now;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(now) : : "memory");
  return now;
}
#define MARK() \
  if (get_local_id(0) == 0) { \
    const long now = clock_now(); \
    times[mark++] += now - then; \
    then = now; \
  }
#define MARKS (8 * LAYERS)
#else
#define MARK()
#endif

__kernel WORK_GROUP(LOCAL, 1, 1) void train(const __global float *images, const __global int *labels,
    const __global int *order, __global float *store, __global float *exchange, volatile __global uint *meeting,
    __global float *losses, __global long *clocks, const int first, const int steps, const float rate)
{
  __local float partial[SLICES * MOST_COLUMNS * PICTURES] __attribute__((aligned(64)));
  __local float loss[PICTURES];
  __local int batch_labels[PICTURES];
  __local uint poll[2];
  Work local_work;
  Work *const work = &local_work;
  work->store = store;
  work->exchange = exchange;
  work->meeting = meeting;
  work->partial = partial;
  work->met = 0;
  work->parity = 0;
  work->group = enter_poll_together(meeting, poll, &work->groups);
  if (work->group >= work->groups) return;
#if HOLD
  __local float held[HELD_FLOATS] __attribute__((aligned(64)));
  work->held = held;
#if STAGE
  __local float staged[STAGED_FLOATS] __attribute__((aligned(64)));
  work->staged = staged;
#endif
  if (work->groups < get_num_groups(0)) { /* `held` has no room for the tiles of the others */
    meeting[REFUSED] = work->groups;
    return;
  }
#else
  work->held = store;
#endif
#if CLOCKS
  long times[MARKS];
  for (int i = 0; i < MARKS; ++i) times[i] = 0;
  long then = clock_now();
#endif
  order += first * BATCH;
  fetch_weights(work);
  if (steps > 0) gather(work, place_of_x(work, 0), images, order);
  if (steps > 1) gather(work, place_of_x(work, 1), images, order + BATCH);
  arrive(work);
  wait(work);

  for (int step = 0; step < steps; ++step) {
    const __global int *const mine = order + step * BATCH;
#if CLOCKS
    int mark = 0;
#endif
    work->parity = step % 2;
    LAYER_LOOP for (int layer = 0; layer < HIDDEN; ++layer) {
      forward(work, layer, place_of_input(work, layer, step));
      MARK();
      /* Behind the only meeting of a step, others would already write over the A that it reads. */
      if (HIDDEN == 1 && step > 0) update_output(work, rate);
      arrive(work);
      if (layer == 0) {
        for (int b = get_local_id(0); b < BATCH; b += LOCAL) batch_labels[b] = labels[mine[b]];
        if (HIDDEN > 1 && step > 0) update_output(work, rate);
      }
      MARK();
      wait(work);
      MARK();
    }

    output(work, batch_labels, loss);
    MARK();
    backward_from_output(work);
    MARK();
    if (HIDDEN > 1) arrive(work);
    else SYNC();
    MARK();
    if (work->group == 0 && get_local_id(0) == 0) {
      float sum = 0;
      for (int b = 0; b < BATCH; ++b) sum += loss[b];
      losses[first + step] = sum / BATCH;
    }
    if (step + 2 < steps) gather(work, place_of_x(work, step + 2), images, mine + 2 * BATCH);
    MARK();

    LAYER_LOOP for (int layer = HIDDEN - 1; layer >= 0; --layer) {
      const int is_last = layer == HIDDEN - 1; /* its D is there */
      if (!is_last) {
        wait(work);
        MARK();
        backward(work, layer);
        MARK();
        if (layer > 0) arrive(work);
        else SYNC();
        MARK();
      }
      update_columns(work, layer, place_of_input(work, layer, step), rate);
      MARK();
      if (!is_last) {
        update_rows(work, layer + 1, rate);
        MARK();
      }
    }
  }
  if (steps > 0) {
    work->parity = steps % 2;
    SYNC();
    update_output(work, rate);
  }
  keep_weights(work);
#if CLOCKS
  if (get_local_id(0) == 0)
    for (int i = 0; i < MARKS; ++i) clocks[work->group * MARKS + i] = times[i];
#endif
}
