"""The first seed that fails, and how: python -m scripts.hunt SEEDS [KIND …]. For mutants.py."""

import sys
import warnings

from scripts.simulate import one


def main() -> None:
    """One line: the seed and its first fault, or that none was found."""
    warnings.simplefilter("ignore")
    kinds = {kind: True for kind in sys.argv[2:]}
    for seed in range(1, int(sys.argv[1]) + 1):
        try:
            faults = one(seed, **kinds).faults
        except Exception as error:
            faults = [f"{type(error).__name__}: {error}"]
        if faults:
            print(seed, faults[0].splitlines()[0])
            return
    print("- not found")


if __name__ == "__main__":
    main()
