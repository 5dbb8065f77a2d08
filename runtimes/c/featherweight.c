/* The implementation as an object of its own: libfeatherweight.so. */
#define FEATHERWEIGHT_IMPLEMENTATION
#include "featherweight.h"
