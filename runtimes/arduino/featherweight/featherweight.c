/* The runtime, in C: the sketch, in C++, only includes its declarations. */
#define FW_COMPACT
#define FW_NO_TRANSFORMERS
#define FW_WINDOW 1024
#define FEATHERWEIGHT_IMPLEMENTATION
#include "featherweight.h"
