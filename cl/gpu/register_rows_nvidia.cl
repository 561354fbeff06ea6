/* register_rows_nvidia: small products, with tiles filled by NVIDIA's asynchronous copies (register_rows.h). */
#include "gpu/register_nvidia.h"
#include "gpu/register_rows.h"
