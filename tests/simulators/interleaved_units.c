/* The instructions of interleaved_units.h. The work-items of a work-group take turns in one thread: each runs until it
 * must wait for others, as it would on the device. Work-groups run one after the other, those of a cluster (interleaved_cluster.h)
 * together. In every second one the last work-items run ahead in place of the first, so that what an order hides shows in the other. It is linked into one library with a kernel. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned int uint;
typedef unsigned long ulong;

void entry(ulong *args);

struct copy { uint to; const void *from; int bytes, size; uint group; };

/* A work-item: where its stack stands while others run, what it waits for, and what its registers hold. */
static struct item {
  void *stack;
  const uint *watched; /* it waits until this is no longer `seen`; 0: it can run */
  uint seen, waited;
  int ended;
  uint multiplied; /* how often it has waited for a multiplication of ptx_wgmma_bare.h */
  int registers_ready, issued, closed;
  ulong pending[64][2];
  float sums[32];
  uint started, landed, open_group;
  struct copy flying[1024]; /* copies from `landed` to `started` */
} *all, *me;
enum { MOST = 1280, STACK = 1 << 18 };
static char *stacks;    /* not a static array, nor is `all`: descriptors reach what lies near `bars` only */
static void *scheduler; /* its stack, while a work-item runs */

static uint items, members = 1, group, groups, row, rows, layer; /* group: the first of the `members` that run together */
static ulong *arguments;
#define item ((uint)(me - all)) /* of all members */
#define member (item / items)

/* Keep the registers that a call keeps, and the stack at *from; go on with the stack `to`. */
void emu_switch(void **from, void *to);
__asm__(
    ".text\n.globl emu_switch\n.hidden emu_switch\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

/* Wait until *word is no longer `seen`. */
static void wait_for(const uint *word, uint seen)
{
  me->watched = word;
  me->seen = seen;
  emu_switch(&me->stack, scheduler);
}

static void end(void)
{
  me->ended = 1;
  emu_switch(&me->stack, scheduler);
}

static void run_item(void)
{
  entry(arguments);
  end();
}

/* Run the work-items of the members until all have ended: always the first that need not wait, so that it gets as far ahead
 * of the others as the kernel's barriers allow. `backwards`: the last. */
static void run_group(int backwards)
{
  const uint count = items * members;
  for (uint i = 0; i < count; ++i) {
    memset(all + i, 0, sizeof *all - sizeof all->flying);
    void **top = (void **)(stacks + (i + 1) * STACK) - 2; /* a call leaves the stack 8 bytes off 16 */
    *top = (void *)run_item;
    all[i].stack = top - 6;
  }
  for (uint left = count, i = 0; left; ++i) {
    if (i == count) {
      fprintf(stderr, "the work-items wait for each other for ever\n");
      abort();
    }
    me = all + (backwards ? count - 1 - i : i);
    if (me->ended || (me->watched && *me->watched == me->seen)) continue;
    me->watched = 0;
    emu_switch(&scheduler, me->stack);
    left -= me->ended;
    i = -1;
  }
}

uint emu_item(void) { return item % items; }
uint emu_items(void) { return items; }
uint emu_group(void) { return group + member; }
uint emu_groups(void) { return groups; }
uint emu_row(void) { return row; } /* dimension 1 */
uint emu_rows(void) { return rows; }
uint emu_layer(void) { return layer; }

struct named { uint come, round, waits, waited, unlike; };
enum { OF_SUB_GROUPS = 32, OF_QUARTETS = OF_SUB_GROUPS + MOST / 32, OF_CLUSTER = OF_QUARTETS + MOST / 128 + 2 };
static struct named named[OF_CLUSTER + 1]; /* 16 of each member, then one for each sub-group, for each quartet, for all */

/* Meetings at which all waited, but had not waited equally often before: compute-sanitizer's racecheck takes them for
 * unordered (docs/upstream/racecheck.md). */
ulong emu_unlike;

static void come(uint n, uint count, int wait)
{
  const uint round = named[n].round;
  if (wait && n < OF_SUB_GROUPS) {
    if (named[n].waits++ == 0) named[n].waited = me->waited;
    named[n].unlike |= named[n].waited != me->waited;
    ++me->waited;
  }
  if (++named[n].come == count) {
    emu_unlike += named[n].unlike && named[n].waits == count;
    named[n].come = named[n].waits = named[n].unlike = 0;
    ++named[n].round;
  } else if (wait) {
    wait_for(&named[n].round, round);
  }
}

/* `count` work-items of a work-group meet at its barrier `n`, below 16; those that only arrive do not wait. */
void emu_named(uint n, uint count, int wait) { come(n + 16 * member, count, wait); }

/* For sync.aligned instructions: the work-items of a sub-group, or of a quartet, wait for each other. */
void emu_converge(void) { come(OF_SUB_GROUPS + item / 32, 32, 1); }
static void converge_quartet(void)
{
  come(OF_QUARTETS + member * ((items + 127) / 128) + item % items / 128, 128, 1);
}

/* interleaved_cluster.h: all work-items of the members wait for each other. */
void emu_meet_members(void) { come(OF_CLUSTER, items * members, 1); }

/* Local arrays of which each member has a part of so many bytes, and the same place as `address` in another's. */
static struct { uint base, nbytes; } parts[8];
static uint known_parts;

void emu_part(uint base, uint nbytes)
{
  for (uint i = 0; i < known_parts; ++i)
    if (parts[i].base == base) return;
  parts[known_parts].base = base;
  parts[known_parts++].nbytes = nbytes;
}

uint emu_of_member(uint address, uint which)
{
  for (uint i = 0; i < known_parts; ++i)
    if (address - parts[i].base < members * parts[i].nbytes)
      return parts[i].base + which * parts[i].nbytes + (address - parts[i].base) % parts[i].nbytes;
  return address;
}

struct mbarrier { uint address; int wanted, pending, bytes; uint phase; };
static struct mbarrier bars[64];
static uint known;

static struct mbarrier *found(uint address)
{
  for (uint i = 0; i < known; ++i)
    if (bars[i].address == address) return bars + i;
  bars[known].address = address;
  return bars + known++;
}

static void settled(struct mbarrier *b)
{
  if (b->pending == 0 && b->bytes == 0) {
    b->pending = b->wanted;
    ++b->phase;
  }
}

void emu_mbarrier_init(uint address, uint arrivals)
{
  struct mbarrier *b = found(address);
  b->wanted = b->pending = (int)arrivals;
  b->bytes = 0;
  b->phase = 0;
}

/* `arrivals` is 0 or 1. Bytes above 0 are announced, below 0 copied. */
void emu_mbarrier_change(uint address, int arrivals, int bytes)
{
  struct mbarrier *b = found(address);
  b->pending -= arrivals;
  b->bytes += bytes;
  settled(b);
}

void emu_mbarrier_wait(uint address, uint parity)
{
  struct mbarrier *b = found(address);
  while ((b->phase & 1) == parity) wait_for(&b->phase, b->phase);
}

/* Local memory at a kernel's address, which is the lower half of an address near `bars`. */
static char *local(uint address) { return (char *)bars + (int)(address - (uint)(ulong)bars); }

/* A tensor map, as WRITE_MAP wrote it. */
struct map { const char *base; long rows, columns, pitch, box_rows, box_columns, type, layers, layer_pitch, width, box_layers; };

/* The place of an address in a box with rows of 128 or 64 bytes. */
static char *swizzled(uint address, long width)
{
  return local(address ^ (address >> 7 & (width == 128 ? 7 : 3)) << 4);
}

/* What the hardware refuses: addresses and lengths that are no multiples of `size`. */
static void demand_multiples(const char *what, ulong of, uint size)
{
  if (of % size == 0) return;
  fprintf(stderr, "%s is no multiple of %u bytes\n", what, size);
  abort();
}

void emu_copy_bytes(uint to, const unsigned char *from, uint bytes, uint bar)
{
  demand_multiples("what a bulk copy reads, writes, or its length", to | (ulong)from | bytes, 16);
  memcpy(local(to), from, bytes);
  emu_mbarrier_change(bar, 0, -(int)bytes);
}

void emu_copy_box(uint to, const struct map *map, int x, int y, int z, uint bar)
{
  const int size = map->type == 0 ? 1 : map->type == 1 ? 2 : 4;
  const long rows = map->box_rows * map->box_layers;
  demand_multiples("the place of a box", to, 128);
  demand_multiples("what a tensor map describes", (ulong)map->base | map->pitch | map->layer_pitch, 16);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < map->box_columns; ++c) {
      const long row = y + r % map->box_rows, layer = z + r / map->box_rows;
      uint value = 0;
      if (row < map->rows && x + c < map->columns && layer < map->layers)
        memcpy(&value, map->base + layer * map->layer_pitch + row * map->pitch + (x + c) * size, size);
      if (map->type == 11) value = value + 0x1000 & 0xffffe000; /* to TF32 */
      memcpy(swizzled(to + r * map->width + c * size, map->width), &value, size);
    }
  emu_mbarrier_change(bar, 0, -(int)(rows * map->box_columns * size));
}

static char *place(uint tile, int line, int k, int size, int lie)
{
  if (lie == 0) return swizzled(tile + line * 128 + k * size, 128);
  if (lie == 1) return swizzled(tile + line / 64 * 8192 + k * 128 + line % 64 * size, 128);
  return swizzled(tile + k * 64 + line * size, 64);
}

/* A number of the operands. `type`: 1 float16, 2 bfloat16, 3 TF32, 4 int8, 5 uint8. */
static double number(const void *at, int type)
{
  uint word = 0;
  float x;
  if (type >= 4) return type == 4 ? *(const signed char *)at : *(const unsigned char *)at;
  if (type == 1) return _cvtsh_ss(*(const unsigned short *)at);
  memcpy((char *)&word + (type == 2 ? 2 : 0), at, type == 2 ? 2 : 4);
  memcpy(&x, &word, 4);
  return x;
}
static int size_of(int type) { return type >= 4 ? 1 : type == 3 ? 4 : 2; }

/* Adds products of operands of that type to sum i. */
static void add(void *acc, int i, double products, int type)
{
  if (type >= 4) ((int *)acc)[i] += (int)products;
  else ((float *)acc)[i] += (float)products;
}

/* This work-item's part of D (64 x columns) = A B + (keep ? D : 0), over 32 bytes of K. */
void emu_wgmma(void *acc, uint a, uint b, int keep, int columns, int type_a, int type_b, int lie_a, int lie_b)
{
  const int s = item % 128 / 32, g = item % 32 / 4, t = item % 4, size = size_of(type_a);
  if (!keep) memset(acc, 0, columns * 2);
  for (int i = 0; i < columns / 2; ++i) {
    double sum = 0;
    for (int k = 0; k < 32 / size; ++k)
      sum += number(place(a, 16 * s + g + 8 * (i / 2 % 2), k, size, lie_a), type_a) *
             number(place(b, 8 * (i / 4) + 2 * t + i % 2, k, size, lie_b), type_b);
    add(acc, i, sum, type_a);
  }
}

static uint words[MOST][6]; /* words that the work-items of a sub-group exchange */

void emu_load_pair(uint *to, uint from) { memcpy(to, local(from), 8); }
void emu_load_four(uint *words, uint from) { memcpy(words, local(from), 16); }
void *emu_local(uint address) { return local(address); }
void emu_store_half(uint to, uint word) { memcpy(local(to), &word, 2); }
void emu_store_word(uint to, uint word) { memcpy(local(to), &word, 4); }
void emu_store_pair(uint to, uint first, uint second)
{
  const uint words[2] = {first, second};
  memcpy(local(to), words, 8);
}

/* The same where A is in the sub-group's registers: a[h + 2 q] of work-item 4 g + t has bytes 16 q + 4 t .. of row g + 8 h. */
void emu_wgmma_left(void *acc, const uint *a, uint b, int columns, int type_a, int type_b)
{
  const int first = item / 32 * 32, g = item % 32 / 4, t = item % 4, size = size_of(type_a);
  memcpy(words[item], a, 16);
  emu_converge();
  for (int i = 0; i < columns / 2; ++i) {
    double sum = 0;
    for (int at = 0; at < 32; at += size) {
      const uint *left = words[first + 4 * g + at % 16 / 4] + i / 2 % 2 + at / 16 * 2;
      sum += number((const char *)left + at % 4, type_a) *
             number(place(b, 8 * (i / 4) + 2 * t + i % 2, at / size, size, 0), type_b);
    }
    add(acc, i, sum, type_a);
  }
  emu_converge();
}

/* ptx_wgmma_bare.h, for tiles along K whose descriptors have all their fields, and 64 x 64 sums. The instructions run as
 * late as they may: when their work-item waits for them. Until then its sums are NaN. They stay NaN, or become it, where a
 * group was not closed, where wgmma_fence is missing, or where a work-item of the quartet has not called stores_fence
 * since the last multiplication. */
static uint stored[128]; /* how often each work-item has called stores_fence */

void emu_bare_stores(void) { ++stored[item % 128]; }
void emu_bare_fence(void) { me->registers_ready = 1; }
void emu_bare_commit(void) { me->closed = me->issued; }

void emu_bare_wgmma(float *d, ulong a, ulong b)
{
  for (int i = 0; i < 32 && me->issued == 0; ++i) {
    me->sums[i] = me->registers_ready ? d[i] : NAN;
    d[i] = NAN;
  }
  me->pending[me->issued][0] = a;
  me->pending[me->issued++][1] = b;
}

/* Element k of a line of the tile that a descriptor describes; NaN if its swizzle is not over 128 bytes. */
static float described(ulong tile, int line, int k, int bfloat16)
{
  const uint near = (uint)(ulong)bars;
  const int away = (int)(((uint)(tile & 0x3fff) << 4) - near << 14) >> 14; /* the low 18 bits, with a sign */
  const uint atom = (uint)(tile >> 32 & 0x3fff) << 4;
  const char *at = swizzled(near + away + line / 8 * atom + line % 8 * 128 + k * 2, 128);
  return tile >> 62 != 1 ? NAN : number(at, bfloat16 ? 2 : 1);
}

void emu_bare_wait(float *d, int bfloat16)
{
  const int s = item % 128 / 32, g = item % 32 / 4, t = item % 4;
  int seen = 1;
  emu_converge();
  ++me->multiplied;
  for (int i = 0; i < 128; ++i) seen &= stored[i] >= me->multiplied;
  for (int n = 0; n < me->closed; ++n)
    for (int i = 0; i < 32; ++i)
      for (int k = 0; k < 16; ++k)
        me->sums[i] += described(me->pending[n][0], 16 * s + g + i / 2 % 2 * 8, k, bfloat16) *
                       described(me->pending[n][1], i / 4 * 8 + 2 * t + i % 2, k, bfloat16);
  for (int i = 0; i < 32 && me->closed; ++i) d[i] = seen ? me->sums[i] : NAN;
  me->issued = me->closed = me->registers_ready = 0;
}

/* ptx.h: a copy lands when its work-item waits for it, not before. So a missing wait is noticed. */
ulong emu_copied, emu_read; /* bytes written, zeros too; bytes read */
int emu_stops;    /* 1: work-items end when they first wait for copies */

void emu_copy(uint to, const void *from, int bytes, int size)
{
  if (to % size || (ulong)from % size) {
    fprintf(stderr, "a copy of %d bytes is not aligned to them\n", size);
    abort();
  }
  me->flying[me->started++ % 1024] = (struct copy){to, from, bytes, size, me->open_group};
  emu_copied += size;
  emu_read += bytes;
}

void emu_commit(void) { ++me->open_group; }

/* Copies land that were started before the last `pending` closed groups. */
void emu_land(uint pending)
{
  if (emu_stops) end();
  for (; me->landed < me->started && me->flying[me->landed % 1024].group + pending < me->open_group; ++me->landed) {
    const struct copy *c = me->flying + me->landed % 1024;
    memset(local(c->to), 0, c->size);
    memcpy(local(c->to), c->from, c->bytes);
  }
}

/* ptx_wgmma_held.h. The instructions run as late as they may: when their work-item waits for their group. `b`: the address in 16
 * bytes. */
enum { MOST_HELD = 16 };
static struct held { uint a[MOST_HELD][4]; ulong b[MOST_HELD]; int group[MOST_HELD]; uint issued; int groups; float *acc; } *held;

void emu_held(float *acc, const uint *a, ulong b)
{
  if (!held) held = calloc(MOST, sizeof *held); /* no static array either */
  struct held *h = held + item;
  converge_quartet();
  if (h->issued == MOST_HELD) {
    fprintf(stderr, "more multiplications than the emulator keeps\n");
    abort();
  }
  h->acc = acc;
  memcpy(h->a[h->issued], a, 16);
  h->group[h->issued] = h->groups;
  h->b[h->issued++] = b;
}

void emu_held_commit(void) { ++held[item].groups; }

/* Runs all groups but the last `pending`. */
void emu_held_wait(int pending, int columns, int type)
{
  const uint first = item / 32 * 32, g = item % 32 / 4, t = item % 4;
  uint done = 0;
  if (!held) held = calloc(MOST, sizeof *held); /* no static array either */
  struct held *h = held + item;
  converge_quartet();
  for (; done < h->issued && h->group[done] < h->groups - pending; ++done) {
    const uint near = (uint)h->b[done] << 4;
    for (int i = 0; i < columns / 2; ++i)
      for (uint k = 0; k < 16; ++k) {
        const uint column = i / 4 * 8 + 2 * t + i % 2;
        const char *at = swizzled(near + column * 128 + k * 2, 128);
        const uint *left = held[first + 4 * g + k % 8 / 2].a[done] + i / 2 % 2 + k / 8 * 2;
        h->acc[i] += number((const char *)left + k % 2 * 2, type) * number(at, type);
      }
  }
  converge_quartet();
  for (uint n = done; n < h->issued; ++n) {
    memcpy(h->a[n - done], h->a[n], 16);
    h->b[n - done] = h->b[n], h->group[n - done] = h->group[n];
  }
  h->issued -= done;
}

/* ptx.h: whether x holds for all work-items of the work-group, which meet. */
int emu_all(int x)
{
  static uint refusals[2]; /* of each member */
  refusals[member] += !x;
  emu_named(0, items, 1);
  const int all_agree = !refusals[member];
  emu_named(0, items, 1);
  if (item % items == 0) refusals[member] = 0;
  emu_named(0, items, 1);
  return all_agree;
}

/* ptx.h */
uint emu_exchanged(uint value, int distance)
{
  words[item][0] = value;
  emu_converge();
  const uint other = words[item ^ distance][0];
  emu_converge();
  return other;
}

/* ptx_mma.h */
void emu_load_matrices(uint *w, uint address)
{
  const uint first = item / 32 * 32;
  demand_multiples("the address of a matrix's row", address, 16);
  words[item][0] = address;
  emu_converge();
  for (uint m = 0; m < 4; ++m) w[m] = *(uint *)local(words[first + 8 * m + item % 32 / 4][0] + 4 * (item % 4));
  emu_converge();
}

void emu_load_matrices_transposed(uint *w, uint address)
{
  const uint first = item / 32 * 32;
  words[item][0] = address;
  emu_converge();
  for (uint m = 0; m < 4; ++m) {
    w[m] = 0;
    for (uint e = 0; e < 2; ++e) {
      const uint row = words[first + 8 * m + 2 * (item % 4) + e][0];
      w[m] |= (uint)*(unsigned short *)local(row + 2 * (item % 32 / 4)) << 16 * e;
    }
  }
  emu_converge();
}

/* a[h + 2 q] of work-item 4 g + t has bytes 16 q + 4 t .. of row g + 8 h of A, b[q] of column g of B. */
void emu_mma(void *d, const uint *a, const uint *b, int type_a, int type_b)
{
  const uint first = item / 32 * 32, g = item % 32 / 4, t = item % 4, size = size_of(type_a);
  memcpy(words[item], a, 16);
  memcpy(words[item] + 4, b, 8);
  emu_converge();
  for (uint j = 0; j < 4; ++j) {
    double sum = 0;
    for (uint at = 0; at < 32; at += size) {
      const uint *left = words[first + 4 * g + at % 16 / 4] + j / 2 + at / 16 * 2;
      const uint *right = words[first + 4 * (2 * t + j % 2) + at % 16 / 4] + 4 + at / 16;
      sum += number((const char *)left + at % 4, type_a) * number((const char *)right + at % 4, type_b);
    }
    add(d, j, sum, type_a);
  }
  emu_converge();
}

/* ptx_mma.h, float64 */
static double doubles[512][12];

void emu_mma_double(double *d, const double *a, const double *b, int depth)
{
  const uint first = item / 32 * 32, g = item % 32 / 4, t = item % 4;
  memcpy(doubles[item], a, 4 * depth);
  memcpy(doubles[item] + 8, b, 2 * depth);
  emu_converge();
  for (uint h = 0; h < 2; ++h)
    for (uint c = 0; c < 2; ++c)
      for (int k = 0; k < depth; ++k)
        d[2 * h + c] += doubles[first + 4 * g + k % 4][h + 2 * (k / 4)] *
                        doubles[first + 4 * (2 * t + c) + k % 4][8 + k / 4];
  emu_converge();
}

float emu_float_of_half(unsigned short x) { return _cvtsh_ss(x); }
unsigned short emu_half_of_float(float x) { return _cvtss_sh(x, 0); }

/* All work-groups of a launch: `all_groups` in dimension 0, `all_rows` in 1, `layers` in 2. */
/* `cluster`: so many work-groups run together. */
void run(ulong *args, uint all_groups, uint all_rows, uint layers, uint group_size, uint cluster)
{
  if (!all) all = calloc(MOST, sizeof *all), stacks = aligned_alloc(64, (ulong)MOST * STACK);
  arguments = args;
  items = group_size;
  members = cluster;
  groups = all_groups;
  rows = all_rows;
  for (uint n = 0; n < layers * rows * groups; n += members) {
    layer = n / (rows * groups);
    row = n / groups % rows;
    group = n % groups;
    memset(named, 0, sizeof named);
    memset(bars, 0, sizeof bars);
    memset(stored, 0, sizeof stored);
    known = known_parts = 0;
    run_group(n / members % 2);
  }
}
