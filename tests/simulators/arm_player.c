/* Plays the launches of kernels on this processor, one work-item after another (arm.py).
 *
 *   player IMAGE < SCRIPT
 *
 * IMAGE is a file that is mapped to memory: operands, results and workspace. A line "guard" with an offset in IMAGE
 * means that no access to the page there is allowed. Each other line of SCRIPT is a launch: the shared library, the
 * function, three global sizes, three local sizes, and 64-bit arguments: "v" and a number, or "p" and an offset.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_ARGUMENTS 64
#define PAGE 4096

typedef unsigned long ulong;

static ulong global_id[3], global_size[3], local_size[3];

/* What arm_builtins.h asks for. */
ulong player_global_id(unsigned d) { return d < 3 ? global_id[d] : 0; }
ulong player_global_size(unsigned d) { return d < 3 ? global_size[d] : 1; }
ulong player_local_size(unsigned d) { return d < 3 ? local_size[d] : 1; }

static void *checked(void *p, const char *what)
{
  if (p) return p;
  const char *said = dlerror();
  fprintf(stderr, "%s: %s\n", what, said ? said : "failed");
  exit(1);
}

static char *mapped(const char *path)
{
  struct stat status;
  const int file = open(path, O_RDWR);
  if (file < 0 || fstat(file, &status)) checked(0, path);
  void *at = mmap(0, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return checked(at == MAP_FAILED ? 0 : at, path);
}

/* The arguments of a line, from `text` on. */
static void read_arguments(ulong *arguments, char *text, char *image)
{
  int count = 0;
  for (char *word = strtok(text, " \n"); word; word = strtok(0, " \n")) {
    checked(count < MOST_ARGUMENTS ? word : 0, "too many arguments");
    const ulong number = strtoul(word + 1, 0, 10);
    arguments[count++] = *word == 'p' ? (ulong)(image + number) : number;
  }
}

/* The launch that a line describes. */
static void play(char *line, char *image)
{
  static char library[1 << 12], function[256];
  ulong *const size = global_size, arguments[MOST_ARGUMENTS];
  int read;
  const int found = sscanf(line, "%4095s %255s %lu %lu %lu %lu %lu %lu%n", library, function, size, size + 1, size + 2,
                           local_size, local_size + 1, local_size + 2, &read);
  checked(found == 8 ? line : 0, "not a launch");
  read_arguments(arguments, line + read, image);
  void *opened = checked(dlopen(library, RTLD_NOW), library);
  void (*entry)(ulong *) = (void (*)(ulong *))checked(dlsym(opened, function), function);
  for (global_id[2] = 0; global_id[2] < size[2]; ++global_id[2])
    for (global_id[1] = 0; global_id[1] < size[1]; ++global_id[1])
      for (global_id[0] = 0; global_id[0] < size[0]; ++global_id[0]) entry(arguments);
}

int main(int argc, char **argv)
{
  static char line[1 << 16];
  char *image = mapped(checked(argc == 2 ? argv[1] : 0, "one argument is needed"));
  while (fgets(line, sizeof line, stdin)) {
    ulong guard;
    if (sscanf(line, "guard %lu", &guard) == 1) checked(mprotect(image + guard, PAGE, PROT_NONE) ? 0 : line, "mprotect");
    else play(line, image);
  }
  return 0;
}
