/* target: what the compiler was told about the processor, by its predefined macros.
 *
 * Defines TARGET_BITS, the width of the processor's widest vector registers; 0: the compiler does not say, as those that
 * compile to SPIR-V first.
 *
 * Registers of SVE have 128 bits or more. Clang uses them for OpenCL's vectors only if it knows how many, else Neon's.
 */
#if defined(__AVX512F__) || AVX512 || __ARM_FEATURE_SVE_BITS >= 512
#define TARGET_BITS 512
#elif defined(__AVX__) || __ARM_FEATURE_SVE_BITS >= 256
#define TARGET_BITS 256
#elif defined(__SSE2__) || defined(__ARM_NEON)
#define TARGET_BITS 128
#else
#define TARGET_BITS 0
#endif
