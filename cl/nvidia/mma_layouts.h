/* mma_layouts: how a tile of an operand lies in local memory (mma_copies.h).
 *
 *   ALONG    along K, as the operand is stored
 *   ACROSS   across K, as the operand is stored
 *   TURNED   along K, though the operand is stored across K
 */
#define ALONG 0
#define ACROSS 1
#define TURNED 2
