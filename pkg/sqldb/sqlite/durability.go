package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/millweir/millweir/pkg/sqldb"
)

// inspect reads what a commit on the connection waits for; Open has asked for FULL.
func inspect(ctx context.Context, conn driver.Conn) (sqldb.Durability, error) {
	row, err := sqldb.Row(ctx, conn, "PRAGMA synchronous")
	if err != nil {
		return nil, err
	}
	return durability(row[0]), nil
}

// durability judges PRAGMA synchronous, under a write-ahead log.
func durability(synchronous string) sqldb.Durability {
	s := sqldb.Setting{Name: "synchronous", Value: synchronous, Level: sqldb.LevelDisk, Want: "FULL"}
	switch synchronous {
	case "3":
		s.Value = "EXTRA"
	case "2":
		s.Value = "FULL"
	case "1":
		s.Value, s.Level, s.Loses = "NORMAL", sqldb.LevelSecond, "a power failure loses the last accepted uploads"
	default:
		s.Value, s.Level, s.Loses = "OFF", sqldb.LevelNone, "a power failure ruins the whole database"
	}
	return sqldb.Durability{s}
}
