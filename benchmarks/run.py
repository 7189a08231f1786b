"""minitvm and other engines on the same ONNX files, in turn: networks and operators.

    python benchmarks/run.py --quick                       a minute or two
    python benchmarks/run.py                               five networks, some fifty operators
    python benchmarks/run.py resnet50 vit_tiny --threads 1,2 --rounds 60 --json results.json
    python benchmarks/run.py gemm "conv 3x3" --plot operators.png
    python benchmarks/run.py networks --schedules tune.jsonl --target "llvm -mcpu=x86-64-v3"

How to read what it prints: docs/benchmarks.md.
"""

import sys

from against.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
