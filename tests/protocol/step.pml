/* The protocol of a step (buffers/PROTOCOL.md) as a model for spin. -DDEPTH=2 or 3: of the rings. -DNO_...: without the guard of that name;
 * protocol_test.py has them all. The words are those of the protocol; comments name the functions and rules that are modelled. */
#include "memory.pml"
#include "device.pml"
#include "host.pml"
