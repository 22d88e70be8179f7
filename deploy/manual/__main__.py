"""Write all manual pages: ``python -m deploy.manual DIRECTORY``, as DIRECTORY/man1/omfs.1 and so on.

Their date is that of ``$SOURCE_DATE_EPOCH``, else of today.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from deploy.manual.pages import all_pages


def main() -> None:
    directory = Path(sys.argv[1])
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    for name, text in all_pages(datetime.fromtimestamp(seconds, UTC).date()).items():
        path = directory / f"man{name[-1]}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
