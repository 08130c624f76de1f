package mysql

import (
	"context"
	"database/sql/driver"
	"errors"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/millweir/millweir/pkg/sqldb"
)

const (
	lookQuery = "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.sync_binlog"
	// unknownVariable is answered by servers of the same protocol that have no InnoDB.
	unknownVariable = 1193
)

// inspect reads when the server writes its logs to disk.
func inspect(ctx context.Context, conn driver.Conn) (sqldb.Durability, error) {
	row, err := sqldb.Row(ctx, conn, lookQuery)
	var e *mysql.MySQLError
	if errors.As(err, &e) && e.Number == unknownVariable {
		return sqldb.Durability{{Name: "innodb_flush_log_at_trx_commit", Value: "unknown", Level: sqldb.LevelUnknown, Want: "1"}}, nil
	}
	if err != nil {
		return nil, err
	}
	return durability(row[0], row[1], row[2]), nil
}

// durability judges the settings. A commit is durable when InnoDB's log is flushed with it and, if there is a binary log,
// that too: recovery rolls back what is prepared in InnoDB and not in the binary log.
func durability(flush, logBin, syncBinlog string) sqldb.Durability {
	log := sqldb.Setting{Name: "innodb_flush_log_at_trx_commit", Value: flush, Level: sqldb.LevelDisk, Want: "1"}
	switch flush {
	case "1", "3": // 3 is MariaDB's: one flush more than 1
	case "2":
		log.Level, log.Loses = sqldb.LevelSecond, "a power failure loses up to about the last second of accepted uploads"
	default:
		log.Level, log.Loses = sqldb.LevelNone, "a crash of the database server loses up to about the last second of accepted uploads"
	}
	all := sqldb.Durability{log}
	if logBin != "1" && logBin != "ON" {
		return all
	}
	binlog := sqldb.Setting{Name: "sync_binlog", Value: syncBinlog, Level: sqldb.LevelDisk, Want: "1"}
	if syncBinlog != "1" {
		binlog.Level, binlog.Loses = sqldb.LevelSecond, "a power failure loses the accepted uploads that are not in the binary log on disk"
	}
	return append(all, binlog)
}
