/* verify/transfer: what a device sends, summed, to compare with the sum of what arrives at the host.
 *
 *   transfer_sums   sums[i] = w_i + w_(i+n) + ... modulo 2^32, n work-items; w_j = the j-th 4 bytes of `data`
 *
 * Bytes after the last four are a word of their own, filled with zeros. `data` may begin anywhere.
 * One wrong word always changes the sum; of several, all but 2^-32 of the ways to be wrong do.
 */
__kernel void transfer_sums(__global const uchar *data, const long data_offset, const long nbytes, __global uint *sums)
{
  data += data_offset;
  const long words = nbytes / 4;
  uint sum = 0;
  for (long j = get_global_id(0); j < words; j += get_global_size(0)) sum += as_uint(vload4(j, data));
  if (get_global_id(0) == 0)
    for (int e = 0; e < (int)(nbytes % 4); ++e) sum += (uint)data[4 * words + e] << 8 * e;
  sums[get_global_id(0)] = sum;
}
