/* split_k: adds partial sums of tiles that lie row by row. */
#include "include/partial_rows.h"
#include "include/add_partial_sums.h"
