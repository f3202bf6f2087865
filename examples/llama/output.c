#include "examples/llama/output.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/llama/error.h"

int llama_output_open(const char *option, const char *path, llama_output *output) {
  *output = (llama_output){ option, path, NULL };
  if (!path)
    return 0;
  output->file = fopen(path, "ab");
  return output->file ? 0 : llama_fail("%s is %s, expected a file that can be written: %s", option, path, strerror(errno));
}

/* The same file may have several names. */
int llama_output_differ(const llama_output *a, const llama_output *b) {
  struct stat one, other;
  if (!a->file || !b->file || fstat(fileno(a->file), &one) != 0 || fstat(fileno(b->file), &other) != 0)
    return 0;
  if (!S_ISREG(one.st_mode) || one.st_dev != other.st_dev || one.st_ino != other.st_ino)
    return 0;
  return llama_fail("%s and %s are both %s, expected two files", a->option, b->option, b->path);
}

/* Pipes and terminals have no length to cut. */
int llama_output_begin(llama_output *output) {
  struct stat status;
  int descriptor = output->file ? fileno(output->file) : -1;
  if (descriptor < 0 || fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || ftruncate(descriptor, 0) == 0)
    return 0;
  return llama_fail("%s: %s cannot be emptied: %s", output->option, output->path, strerror(errno));
}

int llama_output_close(llama_output *output) {
  if (!output->file)
    return 0;
  int failed = ferror(output->file);
  failed |= fclose(output->file);
  output->file = NULL;
  return failed ? llama_fail("%s: %s cannot be written", output->option, output->path) : 0;
}
