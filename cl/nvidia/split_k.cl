/* split_k: adds partial sums of tiles that lie as wgmma.cl's quartets hold them. */
#define ELEMENT A_TYPE
#include "nvidia/partial_fragments.h"
#include "include/add_partial_sums.h"
