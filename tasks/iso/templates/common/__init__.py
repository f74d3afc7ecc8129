"""What every installer does the same way in the installed system."""
