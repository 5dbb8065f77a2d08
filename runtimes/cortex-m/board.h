/* Functions of start.c that main.c uses. */
#include <stdint.h>

/* Print a zero-terminated string. */
void print(const char *text);
/* Return the next byte of standard input, -1 at the end. */
int next_byte(void);
/* End the program. */
void stop(int failed);
/* Return the number of stack bytes that have been used since the start. */
uint32_t stack_used(void);
/* Return the processor's tick count, which wraps around at 2^24. */
uint32_t ticks(void);
