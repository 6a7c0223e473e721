"""The benchmark on machines without Hydra: `python -m dpbench.bench [KEY=VALUE ...]`."""

import sys

from dpbench.bench.command import bench
from dpbench.errors import UserError

if __name__ == "__main__":
    try:
        bench(sys.argv[1:])
    except UserError as error:
        print(f"dpbench: {error}", file=sys.stderr)
        sys.exit(2)
