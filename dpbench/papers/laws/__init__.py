"""What is misreported if batches are drawn by one law and accounted for by another."""
