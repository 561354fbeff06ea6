/* copy: copies a stack of matrices and converts its elements, from any strides to any strides.
 *
 *   work-item (j, i, z)  ->  target(z, i, j) = source(z, i, j), activated and converted
 *
 * Kernels do not read some operands (no unit stride, or a dtype that they do not take). These are copied to a dense
 * temporary. A result is copied to an `out` that kernels do not write.
 *
 * What the target's type cannot hold is dropped, as NumPy's casting="unsafe" does: imaginary parts; the fraction of a
 * number that becomes an integer; the bits of an integer beyond the target's. A bool is whether a number is not zero.
 *
 * Index map, in elements: i * rs + j * cs + batch_offsets[2 z] (source), [2 z + 1] (target).
 * Macros: ACTIVATION; those of types.h, where A is the source and OUT the target, and ACC_TYPE is wide enough for both.
 * Technique: none. Memory bandwidth limits the speed.
 */
#include "include/types.h"
#include "include/activation.h"

__kernel void copy_strided(
    const int rows, const int cols,
    __global const A_T *source, const long source_offset, const long source_rs, const long source_cs,
    __global OUT_T *target, const long target_offset, const long target_rs, const long target_cs,
    __global const long *batch_offsets)
{
  const int j = get_global_id(0);
  const int i = get_global_id(1);
  const size_t z = get_global_id(2);
  if (i >= rows || j >= cols) return;

  source += source_offset + batch_offsets[2 * z];
  target += target_offset + batch_offsets[2 * z + 1];
  const ACC_T value = ACTIVATE(LOAD_A(source, i * source_rs + j * source_cs));
  STORE_OUT(target, i * target_rs + j * target_cs, CAT(converted_, FORM(OUT_TYPE))(value));
}
