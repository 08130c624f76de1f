package sqldb

import (
	"context"
	"slices"
	"strings"
	"time"
)

// SchemeDSN stands for an address that has no scheme: MYSQL_DSN, in the form of Go's driver for MySQL.
const SchemeDSN = "dsn"

// Driver opens databases of one dialect.
type Driver struct {
	Schemes []string // of addresses: the part before the colon
	Form    string   // of an address, for messages
	// Check tries an address without connecting.
	Check func(address string) error
	// Open opens the database; now is the clock of a database that has none, nil: time.Now.
	Open func(ctx context.Context, address string, pool PoolSize, now func() time.Time) (*Backend, error)
}

// drivers are written before main begins, and only read from then on.
var drivers []Driver

// Register makes a dialect known. The dialects' packages call it in their init, as drivers of database/sql do:
// a program opens the dialects that it imports.
func Register(d Driver) { drivers = append(drivers, d) }

// DriverOf returns the driver for a scheme; ok false: this program does not link it.
func DriverOf(scheme string) (d Driver, ok bool) {
	i := slices.IndexFunc(drivers, func(d Driver) bool { return slices.Contains(d.Schemes, scheme) })
	if i < 0 {
		return Driver{}, false
	}
	return drivers[i], true
}

// Forms lists the forms of addresses that this program opens.
func Forms() string {
	var forms []string
	for _, d := range drivers {
		if !slices.Contains(d.Schemes, SchemeDSN) {
			forms = append(forms, d.Form)
		}
	}
	slices.Sort(forms)
	return strings.Join(forms, " or ")
}
