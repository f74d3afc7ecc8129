"""What Ubuntu does at the end of the installation."""
