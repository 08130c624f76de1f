package rival

import (
	"context"
	"database/sql"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// inDatabase is a data source name with another database.
func inDatabase(dsn, database string) (string, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	c.DBName = database
	return c.FormatDSN(), nil
}

// openMySQL opens a pool as the rivals on MySQL use it: parameters are put into the text, so that a statement is one
// round trip; READ COMMITTED, as the isolation that queues on this family of servers want.
func openMySQL(ctx context.Context, dsn string, connections int) (*sql.DB, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	c.InterpolateParams, c.ParseTime, c.MultiStatements = true, true, true
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	c.Params["tx_isolation"] = "'READ-COMMITTED'"
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, db.PingContext(ctx)
}

// rowsOf is a multi-row INSERT: head and n times row.
func rowsOf(head, row string, n int) string {
	return head + " VALUES " + strings.TrimSuffix(strings.Repeat(row+",", n), ",")
}

// among is (?, …) with n places.
func among(n int) string { return "(" + strings.TrimSuffix(strings.Repeat("?,", n), ",") + ")" }
