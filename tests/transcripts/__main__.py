"""Writes the effects of all transcripts anew: `python -m transcripts`."""

from transcripts.stage import Stage
from transcripts.text import FILES, rewritten

for path in FILES:
    text = path.read_text("utf-8")
    path.write_text(rewritten(text, Stage().run), "utf-8")
