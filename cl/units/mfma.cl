/* mfma: out = A B on the matrix units of AMD's gfx90a and gfx942. The kernel is in unit.h. */
#include "units/amd_mfma.h"
#include "units/unit.h"
