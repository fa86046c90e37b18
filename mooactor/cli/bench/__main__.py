# SPDX-License-Identifier: MIT
"""``python -m mooactor.cli.bench GROUP [--quick]``: measure one group, a row a line.

For `report`, which starts it: it prints JSON objects.
"""

import json
import sys
from dataclasses import asdict

from mooactor.cli.bench.groups import GROUPS
from mooactor.cli.bench.measure import QUICK, THOROUGH
from mooactor.cli.bench.row import Row


def main(group: str, *flags: str) -> None:
    effort = QUICK if "--quick" in flags else THOROUGH
    for row in GROUPS[group].rows(effort):
        fields = row.as_json() if isinstance(row, Row) else asdict(row)
        print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
