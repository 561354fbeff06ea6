/* register_held: out = A B with tiles staged in registers, in plain OpenCL C. The kernel is in register.h. */
#include "gpu/register_held.h"
#include "gpu/register.h"
