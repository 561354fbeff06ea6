/* wmma: out = A B on the matrix units of AMD's RDNA 3. The kernel is in unit.h. */
#include "units/amd_wmma.h"
#include "units/unit.h"
