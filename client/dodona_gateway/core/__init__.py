"""The gateway's sans-IO half: YSON, YTsaurus's query language, tokens and what they allow."""
