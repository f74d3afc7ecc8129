"""Templates of the installer files, one folder an installer; packages so that wheels hold them."""
