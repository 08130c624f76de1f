// Package dialects links every dialect there is. The all-in-one, tests and scripts import it;
// a service imports the dialects that it offers.
package dialects

import (
	_ "github.com/millweir/millweir/pkg/sqldb/mysql"
	_ "github.com/millweir/millweir/pkg/sqldb/postgres"
	_ "github.com/millweir/millweir/pkg/sqldb/sqlite"
)
