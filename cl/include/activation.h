/* activation: ACTIVATE(x), the activation of a value of the accumulator's type.
 *
 * ACTIVATION   0 none, 1 relu, 2 leaky_relu, 3 gelu, 4 gelu_tanh, 5 sigmoid, 6 tanh, 7 silu
 */
#include "include/types.h"

#if !defined(ACTIVATION)
#error "activation.h needs ACTIVATION"
#endif

#define REAL(x) CONSTANT(x, 0)

/* exp, tanh and erf are the builtins of the accumulator's type. Activations exist for real accumulators only. */
#if ACTIVATION == 0
#define ACTIVATE(x) (x)
#elif ACTIVATION == 1
/* a comparison, not fmax: NaN must stay NaN */
#define ACTIVATE(x) (IS_NEGATIVE(x) ? ACC_ZERO : (x))
#elif ACTIVATION == 2
#define ACTIVATE(x) (IS_NEGATIVE(x) ? MUL(CONSTANT(0.01, 0x3f847ae147ae147b), x) : (x))
#elif SOFT_FLOAT64
#error "ACTIVATION needs exp or erf of doubles"
#elif ACTIVATION == 3
#define ACTIVATE(x) (REAL(0.5) * (x) * ((ACC_T)1 + erf((x) * REAL(0.70710678118654752440))))
#elif ACTIVATION == 4
/* x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3). The form with exp gives 0 far
 * below zero, even where a device's tanh is not exactly -1. */
#define ACTIVATE(x)                                            \
  ((x) / ((ACC_T)1 + exp(-REAL(1.59576912160573071176) *       \
  ((x) + REAL(0.044715) * (x) * (x) * (x)))))
#elif ACTIVATION == 5
#define ACTIVATE(x) ((ACC_T)1 / ((ACC_T)1 + exp(-(x))))
#elif ACTIVATION == 6
#define ACTIVATE(x) tanh(x)
#elif ACTIVATION == 7
#define ACTIVATE(x) ((x) / ((ACC_T)1 + exp(-(x))))
#else
#error "ACTIVATION must be 0 to 7"
#endif
