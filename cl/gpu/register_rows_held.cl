/* register_rows_held: small products, with tiles staged in registers (register_rows.h). */
#include "gpu/register_held.h"
#include "gpu/register_rows.h"
