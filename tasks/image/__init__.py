"""Disk images: from where they are published to the storage that a node imports them from."""

from tasks.image.check import check_image
from tasks.image.stage import image, image_digest, image_size, image_volume

__all__ = ["check_image", "image", "image_digest", "image_size", "image_volume"]
