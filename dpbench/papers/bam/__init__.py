"""What Knolle et al. (bam) say that is measured without training privately."""
