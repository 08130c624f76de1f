package sqldb

import (
	"context"
	"fmt"
	"strings"
)

// ServerVersion returns which server this is, and its version as the server tells it. Errors: taskstate.ErrUnavailable.
func (d *Database) ServerVersion(ctx context.Context) (product, version string, err error) {
	version, err = ReadRow(ctx, d, func(row Scanner) (v string, err error) { return v, row.Scan(&v) }, d.queries.Get("ServerVersion"))
	if err != nil {
		return "", "", fmt.Errorf("ask for the server's version: %w", err)
	}
	switch d.dialect() {
	case MySQL:
		if strings.Contains(strings.ToLower(version), "mariadb") {
			return "MariaDB", version, nil
		}
		return "MySQL", version, nil
	case Postgres:
		return "Postgres", version, nil
	case SQLite:
		return "SQLite", version, nil
	}
	panic("sqldb: no such dialect")
}
