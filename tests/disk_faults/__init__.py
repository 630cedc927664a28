"""Power cuts and failing disks under the real stores: recorded, imagined, and judged."""
