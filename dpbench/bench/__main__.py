"""The benchmark on machines without Hydra: `python -m dpbench.bench [KEY=VALUE ...]`."""

import sys

from dpbench.bench.command import bench
from dpbench.bugs import check_words, reported
from dpbench.errors import UserError, tell

if __name__ == "__main__":
    with reported():
        try:
            check_words(sys.argv[1:])
            bench(sys.argv[1:])
        except UserError as error:
            tell(error)
            sys.exit(2)
