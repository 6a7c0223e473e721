"""Claims of Knolle et al. (bam) that are measured without private training."""
