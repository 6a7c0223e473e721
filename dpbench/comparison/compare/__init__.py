"""The one judge: runs of two sides paired by seed, a verdict, and the reasons why none follows."""
