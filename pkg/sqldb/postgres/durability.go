package postgres

import (
	"context"
	"database/sql/driver"

	"github.com/millweir/millweir/pkg/sqldb"
)

// lookQuery sees the values of our own session: synchronous_commit can be set for a role or a database.
const lookQuery = "SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes')"

// inspect reads when the server writes its log to disk.
func inspect(ctx context.Context, conn driver.Conn) (sqldb.Durability, error) {
	row, err := sqldb.Row(ctx, conn, lookQuery)
	if err != nil {
		return nil, err
	}
	return durability(row[0], row[1], row[2]), nil
}

// durability judges the settings. Every synchronous_commit but off waits for the local disk;
// off leaves the log in the server's memory for up to three times wal_writer_delay.
func durability(commit, fsync, fullPages string) sqldb.Durability {
	setting := func(name, value string, off sqldb.Level, loses string) sqldb.Setting {
		if value != "off" {
			off, loses = sqldb.LevelDisk, ""
		}
		return sqldb.Setting{Name: name, Value: value, Level: off, Want: "on", Loses: loses}
	}
	return sqldb.Durability{
		setting("synchronous_commit", commit, sqldb.LevelNone, "a crash of the database server loses the last accepted uploads"),
		setting("fsync", fsync, sqldb.LevelNone, "a power failure ruins the whole database"),
		setting("full_page_writes", fullPages, sqldb.LevelSecond, "a power failure can tear pages, unless the file system writes them whole"),
	}
}
