"""Recognizes digits by their nearest neighbour. One matrix product gives all distances.

    python examples/mnist.py [FOLDER]

FOLDER has MNIST's test files, t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz. Without it the
script draws the digits.
"""

import argparse
from pathlib import Path

from demo import digits

import pyclmm

parser = argparse.ArgumentParser(description="Tell digits by their nearest neighbour.")
parser.add_argument("folder", nargs="?", type=Path, help="where MNIST's test files are; without it: drawn")
folder = parser.parse_args().folder
if folder is not None:
    pictures, source = digits.load(folder), "MNIST"
else:
    pictures, source = digits.draw(2500), "drawn"
count = len(pictures.labels)
learnt, unknown = pictures.split(count * 4 // 5, count - count * 4 // 5)

nearest = digits.nearest(learnt.pictures, unknown.pictures, pyclmm.matmul)
neighbour = digits.accuracy(learnt.labels[nearest], unknown.labels)
means = digits.centroids(learnt)
centroid = digits.accuracy(digits.nearest(means, unknown.pictures, pyclmm.matmul), unknown.labels)

print(
    f"{len(unknown.labels)} {source} digits: nearest of {len(learnt.labels)} pictures {neighbour:.1%} right, "
)
print(f"nearest of 10 mean pictures {centroid:.1%} right")
assert neighbour > centroid > 0.3
