"""What realistic attackers get of a real run: inserted canaries, and the losses of its model."""
