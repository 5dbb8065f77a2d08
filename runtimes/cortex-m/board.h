/* What start.c has for main.c. */
#include <stdint.h>

/* Print a text that is ended by a zero. */
void print(const char *text);
/* Return the next byte of standard input, -1 at its end. */
int next_byte(void);
/* End the program. */
void stop(int failed);
/* Return the bytes of the stack that have been used since the start. */
uint32_t stack_used(void);
/* Return the processor's ticks, which begin again at 0 after 2^24. */
uint32_t ticks(void);
