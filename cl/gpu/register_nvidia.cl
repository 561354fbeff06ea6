/* register_nvidia: out = A B with tiles filled by NVIDIA's asynchronous copies. The kernel is in register.h. */
#include "gpu/register_nvidia.h"
#include "gpu/register.h"
