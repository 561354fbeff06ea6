/* register_rows_held: small products; tiles staged in registers. The kernel is in register_rows.h. */
#include "gpu/register_held.h"
#include "gpu/register_rows.h"
