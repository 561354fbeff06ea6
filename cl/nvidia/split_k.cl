/* split_k: adds the partial sums of tiles that lie as wgmma.cl's fragments (partial_fragments.h). */
#define ELEMENT A_TYPE
#include "nvidia/partial_fragments.h"
#include "include/add_partial_sums.h"
