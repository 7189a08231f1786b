"""The C header of a model, and a sample program that runs it; written beside the library."""

from __future__ import annotations

from minitvm.codegen.program import Program
from minitvm.runtime import abi
from minitvm.runtime.tensor_info import TensorInfo

_C_TYPES = {"bool": "uint8_t", "float16": "uint16_t", "float32": "float", "float64": "double"}

_COMMON = """\
#ifndef MINITVM_H
#define MINITVM_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* A tensor: its elements, row-major, and its shape (NULL: the shape of the model). */
typedef struct {
  void *data;
  const int64_t *shape;
} minitvm_tensor;

enum {
@codes@
};

int32_t minitvm_abi_version(void);
const char *minitvm_model_name(void);
const char *minitvm_error_text(int32_t code);
/* 0, or the error code for a processor without the instructions that the model uses. */
int32_t minitvm_check_cpu(void);

#ifdef __cplusplus
}
#endif
#endif /* MINITVM_H */
"""

_HEADER = """\
/* The model @name@, compiled by minitvm for
   @target@

   inputs:
@inputs@
   outputs:
@outputs@ */
@common@
#ifndef MINITVM_HEADER_OF_@name@
#define MINITVM_HEADER_OF_@name@
#ifdef __cplusplus
extern "C" {
#endif

#define MINITVM_@name@_INPUTS @input_count@
#define MINITVM_@name@_OUTPUTS @output_count@

/* Inputs, outputs, shapes, dtypes, target and provenance, as JSON. */
const char *@name@_metadata(void);
/* How much memory one run needs, aligned to 64 bytes. */
uint64_t @name@_workspace_bytes(void);
/* Runs the model; gives 0 or an error code. Tensors and workspace must not overlap. Several threads
   may run it at once, each with a workspace of its own. threads: 1 to 256, the caller's among
   them; one run at a time has them, others meanwhile compute on their caller's thread alone. */
int32_t @name@_run(const minitvm_tensor *inputs, minitvm_tensor *outputs, void *workspace,
    int32_t threads);
/* Pins the threads that runs start: number i to cpus[i % count], from 1 on, the caller's being
   number 0, which stays where it is. count 0: anywhere. Gives 0 or an error code. */
int32_t @name@_set_affinity(const int32_t *cpus, int32_t count);
/* Maps the file with the weights and checks it, where the library does not hold them: from a path,
   or from beside the library if it is NULL. Done once; the first run does it by itself. Gives 0 or
   an error code. */
int32_t @name@_load_weights(const char *path);

#ifdef __cplusplus
}
#endif
#endif /* MINITVM_HEADER_OF_@name@ */
"""

_SAMPLE = """\
/* Runs the model @name@ on zeros, or on the bytes of the files named on the command line (one for
   each input), and prints the first elements of each output.

     cc @name@_sample.c ./@library@ -o @name@_sample && ./@name@_sample */
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "@header@"

static void *allocate(size_t size) {
  void *memory = NULL;
  if (posix_memalign(&memory, 64, size + 1) != 0) {
    fprintf(stderr, "out of memory\\n");
    exit(1);
  }
  return memset(memory, 0, size);
}

static void read_file(const char *path, void *data, size_t size) {
  FILE *file = fopen(path, "rb");
  if (file == NULL || fread(data, 1, size, file) != size) {
    fprintf(stderr, "%s: can't read %lu bytes\\n", path, (unsigned long)size);
    exit(1);
  }
  fclose(file);
}

int main(int argc, char **argv) {
  static const size_t input_bytes[] = {@input_bytes@};
  static const size_t output_bytes[] = {@output_bytes@};
  minitvm_tensor inputs[@inputs_or_one@];
  minitvm_tensor outputs[@outputs_or_one@];
  void *workspace = allocate((size_t)@name@_workspace_bytes());
  int32_t code;
  int i;
  for (i = 0; i < MINITVM_@name@_INPUTS; i++) {
    inputs[i].data = allocate(input_bytes[i]);
    inputs[i].shape = NULL;
    if (i + 1 < argc) read_file(argv[i + 1], inputs[i].data, input_bytes[i]);
  }
  for (i = 0; i < MINITVM_@name@_OUTPUTS; i++) {
    outputs[i].data = allocate(output_bytes[i]);
    outputs[i].shape = NULL;
  }
  code = @name@_load_weights(NULL);
  if (code == 0) code = @name@_run(inputs, outputs, workspace, 1);
  if (code != 0) {
    fprintf(stderr, "error %d: %s\\n", (int)code, minitvm_error_text(code));
    return 1;
  }
@prints@
  for (i = 0; i < MINITVM_@name@_INPUTS; i++) free(inputs[i].data);
  for (i = 0; i < MINITVM_@name@_OUTPUTS; i++) free(outputs[i].data);
  free(workspace);
  return 0;
}
"""


def header_text(program: Program) -> str:
    """The header `<name>.h`."""
    last = max(abi.ErrorCode)
    lines = [f"  MINITVM_{code.name} = {code}{',' if code != last else ''} "
             f"/* {abi.ERROR_TEXTS[code]} */" for code in abi.ErrorCode]
    common = _COMMON.replace("@codes@", "\n".join(lines))
    return _fill(_HEADER, program).replace("@common@", common)


def sample_text(program: Program, library: str, header: str) -> str:
    """The sample `<name>_sample.c`, for a library and a header of these file names."""
    prints = [line for number, info in enumerate(program.outputs)
              for line in _print_output(number, info)]
    text = _fill(_SAMPLE, program).replace("@prints@", "\n".join(prints))
    return text.replace("@library@", library).replace("@header@", header)


def _fill(template: str, program: Program) -> str:
    name = abi.c_name(program.name)
    words = {
        "name": name,
        "target": str(program.target),
        "inputs": "\n".join(map(_describe, program.inputs)) or "     none",
        "outputs": "\n".join(map(_describe, program.outputs)) or "     none",
        "input_count": str(len(program.inputs)),
        "output_count": str(len(program.outputs)),
        "inputs_or_one": str(max(len(program.inputs), 1)),
        "outputs_or_one": str(max(len(program.outputs), 1)),
        "input_bytes": ", ".join(str(info.size_bytes) for info in program.inputs) or "0",
        "output_bytes": ", ".join(str(info.size_bytes) for info in program.outputs) or "0",
    }
    for word, text in words.items():
        template = template.replace(f"@{word}@", text)
    return template


def _describe(info: TensorInfo) -> str:
    shape = "".join(f"[{extent}]" for extent in info.shape)
    return f"     {_c_type(info)} {_printable(info.name)}{shape}"


def _printable(name: str) -> str:
    """A tensor's name, without what could end a C comment or string."""
    return "".join(c if c.isascii() and c.isprintable() and c not in '*/\\"%@' else "_"
                   for c in name)


def _c_type(info: TensorInfo) -> str:
    return _C_TYPES.get(info.dtype, f"{info.dtype}_t")


def _print_output(number: int, info: TensorInfo) -> list[str]:
    count = 1
    for extent in info.shape:
        count *= extent
    is_float = info.dtype in ("float32", "float64")
    shown = ("%.9g", "(double)") if is_float else ("%lld", "(long long)")
    return [f'  printf("{_printable(info.name)}:");',
            f"  for (i = 0; i < {min(count, 5)}; i++)",
            f'    printf(" {shown[0]}", {shown[1]}((const {_c_type(info)} *)'
            f"outputs[{number}].data)[i]);",
            '  printf("\\n");']
