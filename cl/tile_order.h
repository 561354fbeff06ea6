/* Which tile of out a work-group computes: GROUP rows of tiles at a time, column by column, so that
 * the work-groups that run together read few different tiles of A and B:
 *
 *     0 2 4 6 ..        GROUP = 2
 *     1 3 5 7 ..
 */
inline int2 tile_origin(const int tile, const int tiles_m, const int tiles_n)
{
  const int band = tile / (GROUP * tiles_n);
  const int height = min(GROUP, tiles_m - band * GROUP);
  const int inside = tile - band * GROUP * tiles_n;
  return (int2)((band * GROUP + inside % height) * BM, inside / height * BN);
}
