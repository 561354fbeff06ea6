/* split_k: adds the partial sums of tiles that are stored row by row. */
#include "include/partial_rows.h"
#include "include/add_partial_sums.h"
