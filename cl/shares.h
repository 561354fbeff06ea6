/* Shares of a tile's K, added up inside the launch that computes them.
 *
 * Of two neighbouring shares the one that arrives last adds the other's sums to its own and stands for both,
 * and so on with neighbouring pairs: nobody waits, and the order of the sums is the same in every call.
 *
 *     share    0   1   2   3   4        x: the node where two sums meet, named by the first share to
 *              +-1-+   +-3-+   |           its right; a sum without a neighbour goes up as it is
 *                +---2---+     |
 *                    +----4----+
 *
 * A quartet leaves its sums in the slot of the first share they stand for, as it holds them: accumulators
 * 4 i .. 4 i + 3 of work-item w at 4 (128 i + w). `arrivals`, a number a node, is zero before and after.
 *
 * Macros: ACCS, accumulators a work-item. Joined after ptx_wgmma.h.
 */
#if !defined(ACCS)
#error "shares.h needs ACCS"
#endif

/* Named barriers 1 .. 4 are the quartets'. */
inline void quartet_barrier(const int quartet) { asm volatile("bar.sync %0, 128;" :: "r"(quartet) : "memory"); }

/* How often quartets had come to `node` before this one. What its work-items wrote to global memory before,
 * those of a later one read after. */
inline uint arrivals_before(__global uint *node, const int quartet, __local volatile uint *heard)
{
  quartet_barrier(quartet);
  if (get_local_id(0) % 128 == 0) {
    uint before;
    asm volatile("fence.acq_rel.gpu;\n\tatom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before) : "l"(node) : "memory");
    heard[quartet - 1] = before;
  }
  quartet_barrier(quartet);
  return heard[quartet - 1];
}

__attribute__((always_inline)) inline void leave_sums(__global wgmma_acc *slot, const wgmma_acc *acc)
{
  __global wgmma_acc4 *to = (__global wgmma_acc4 *)slot + get_local_id(0) % 128;
  #pragma unroll
  for (int i = 0; i < ACCS / 4; ++i)
    to[128 * i] = (wgmma_acc4)(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
}

__attribute__((always_inline)) inline void add_sums(__global const wgmma_acc *slot, wgmma_acc *acc)
{
  __global const wgmma_acc4 *from = (__global const wgmma_acc4 *)slot + get_local_id(0) % 128;
  #pragma unroll
  for (int i = 0; i < ACCS / 4; ++i) {
    const wgmma_acc4 v = from[128 * i];
    acc[4 * i] += v.s0;
    acc[4 * i + 1] += v.s1;
    acc[4 * i + 2] += v.s2;
    acc[4 * i + 3] += v.s3;
  }
}

/* Brings `acc` and the other shares of this quartet's tile together; whether acc is now the sum of all.
 * Slots and nodes of one share lie `pitch` slots, or nodes, behind those of the share before. */
__attribute__((always_inline)) inline bool add_shares(
    wgmma_acc *acc, __global wgmma_acc *slots, __global uint *arrivals, const int pitch, const int share,
    const int shares, const int quartet, __local volatile uint *heard)
{
  for (int step = 1; step < shares; step *= 2) {
    const int mine = share / step * step;
    const int other = mine ^ step;
    if (other >= shares) continue;
    __global uint *node = arrivals + max(mine, other) * pitch;
    leave_sums(slots + (long)mine * pitch * ACCS * 128, acc);
    if (arrivals_before(node, quartet, heard) == 0) return false;
    add_sums(slots + (long)other * pitch * ACCS * 128, acc);
    if (get_local_id(0) % 128 == 0) *node = 0;
  }
  return true;
}
