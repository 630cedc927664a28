"""The gateway's sans-IO half: YSON, queries in YTsaurus's language, tokens and what they allow."""
