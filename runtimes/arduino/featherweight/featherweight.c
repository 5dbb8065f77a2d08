/* The runtime, compiled as C: the sketch is C++ and only includes its declarations. */
#define FW_COMPACT
#define FW_NO_TRANSFORMERS
#define FW_WINDOW 1024
#define FEATHERWEIGHT_IMPLEMENTATION
#include "featherweight.h"
