/* register_rows_nvidia: small products; tiles filled by NVIDIA's asynchronous copies. The kernel is in register_rows.h. */
#include "gpu/register_nvidia.h"
#include "gpu/register_rows.h"
