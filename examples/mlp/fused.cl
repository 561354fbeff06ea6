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

#include "fused_meet.cl"
#include "fused_places.cl"
#include "fused_step.cl"

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
