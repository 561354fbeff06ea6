/* addresses: shows whether kernels read the host's memory at the host's addresses (pyclmm/opencl/array_fields.py).
 *
 *   tell      the address that a kernel has of a buffer
 *   follow    adds one to a number that no argument holds: `base` is null, and places[0] says where it is, in longs
 *
 * Macros: none.
 */
__kernel void tell(__global const long *buffer, __global long *told)
{
  told[0] = (long)buffer;
}

__kernel void follow(__global long *base, __global const long *places)
{
  base[places[0]] += 1;
}
