/* dpas: out = A B on the matrix units of Intel's GPUs. The kernel is in unit.h. */
#include "units/intel_dpas.h"
#include "units/unit.h"
