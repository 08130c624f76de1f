package labserver

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	_ "github.com/go-sql-driver/mysql" // the session that looks at MariaDB's counters

	"github.com/millweir/millweir/pkg/labserver/child"
)

// Counters is what a server has counted: since its start, between two looks (Sub), or for each unit of work (Per).
// Unlike times they carry next to no noise, so tests may bound them. What a kind of server does not count is 0.
type Counters struct {
	Statements float64 // SQL statements that clients sent, of any kind: BEGIN, COMMIT and SET too
	Commits    float64 // transactions that wrote (MariaDB: or locked) rows
	Fsyncs     float64 // of log and data files
	RedoBytes  float64 // bytes of redo, or of the write-ahead log
	RowsRead   float64 // rows and index entries that statements looked at
	TempTables float64 // made by statements, in memory or on disk
	Commands   float64 // Redis commands, those inside scripts too: what clients sent is less or the same
	Reads      float64 // reads of Redis from sockets: close to round trips
	CPU        float64 // seconds of the server and all its children that live
	// Named holds what the fields above were made of, by the server's own names.
	Named map[string]float64
}

// Sub is what was counted after before.
func (c Counters) Sub(before Counters) Counters {
	return c.with(before, func(a, b float64) float64 { return a - b })
}

// Per is the share of each of n units of work.
func (c Counters) Per(n int) Counters {
	return c.with(c, func(a, _ float64) float64 { return a / float64(n) })
}

// with joins two looks field by field.
func (c Counters) with(o Counters, f func(a, b float64) float64) Counters {
	out := Counters{
		Statements: f(c.Statements, o.Statements), Commits: f(c.Commits, o.Commits), Fsyncs: f(c.Fsyncs, o.Fsyncs),
		RedoBytes: f(c.RedoBytes, o.RedoBytes), RowsRead: f(c.RowsRead, o.RowsRead), TempTables: f(c.TempTables, o.TempTables),
		Commands: f(c.Commands, o.Commands), Reads: f(c.Reads, o.Reads), CPU: f(c.CPU, o.CPU),
		Named: make(map[string]float64, len(c.Named)),
	}
	for name, v := range c.Named {
		out.Named[name] = f(v, o.Named[name])
	}
	return out
}

// counting is how a running server's counters are looked at.
type counting struct {
	looks   int
	cost    map[string]float64 // what one look adds
	session *sql.DB            // MariaDB: of one connection
}

// end forgets all: a server that is started again counts from zero.
func (c *counting) end() error {
	session := c.session
	*c = counting{}
	if session == nil {
		return nil
	}
	return session.Close()
}

// Counters looks at what a MariaDB, Postgres or Redis server has counted since its start. What the looks themselves
// cost is left out; the first one finds that out, so nobody else should ask the server at that moment.
// Use a server of your own (Private): the counters are those of all its clients.
// A Postgres session that goes on counts its commits up to 10 s late, one that ended at once.
func (s *Server) Counters(ctx context.Context) (Counters, error) {
	if s.class.count == nil {
		return Counters{}, fmt.Errorf("%s has no counters that we know", s.Kind)
	}
	if s.counting.cost == nil {
		first, err := s.class.count(ctx, s)
		if err != nil {
			return Counters{}, s.looking(err)
		}
		second, err := s.class.count(ctx, s)
		if err != nil {
			return Counters{}, s.looking(err)
		}
		s.counting.looks, s.counting.cost = 2, costOf(first, second)
	}
	now, err := s.class.count(ctx, s)
	if err != nil {
		return Counters{}, s.looking(err)
	}
	for name, cost := range s.counting.cost {
		now[name] -= cost * float64(s.counting.looks)
	}
	s.counting.looks++
	c := s.class.counters(now)
	c.CPU = treeCPU(s.main().Tree())
	c.Named = now
	return c, nil
}

func (s *Server) looking(err error) error {
	return fmt.Errorf("look at the counters of %s on %s: %w", s.Kind, s.Addr, err)
}

// costOf is what one look adds; files and logs grow by themselves at any time.
func costOf(first, second map[string]float64) map[string]float64 {
	cost := map[string]float64{}
	for name, v := range second {
		if d := v - first[name]; d != 0 && !strings.HasPrefix(name, "Innodb_") && !strings.HasPrefix(name, "wal_") {
			cost[name] = d
		}
	}
	return cost
}

// mariadbStatus is asked of MariaDB; trx_rw_commits is switched on in mariadbCommands.
var mariadbStatus = []string{
	`SHOW GLOBAL STATUS WHERE Variable_name REGEXP '^(Com_.*|Handler_.*|Created_tmp_.*|Innodb_data_fsyncs|Innodb_os_log_written)$'`,
	`SELECT NAME, COUNT FROM information_schema.innodb_metrics WHERE NAME = 'trx_rw_commits'`,
}

// mariadbCount looks through a session that stays. What a session has counted is missing for a moment when it ends: MariaDB adds up the
// sessions that go on after it has read the sum of those that have ended. So a look must not meet the end of the look before.
func mariadbCount(ctx context.Context, s *Server) (map[string]float64, error) {
	if s.counting.session == nil {
		var err error
		if s.counting.session, err = s.mariadbSession(""); err != nil {
			return nil, err
		}
	}
	out := map[string]float64{}
	for _, statement := range mariadbStatus {
		if err := addNumbers(ctx, s.counting.session, statement, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// addNumbers adds the rows of a statement that are a name and a number.
func addNumbers(ctx context.Context, db *sql.DB, statement string, to map[string]float64) error {
	rows, err := db.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // rows.Err says it
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			to[name] = n
		}
	}
	return rows.Err()
}

// mariadbSession is one session of the superuser, which lasts until it is closed; database "" is none.
func (s *Server) mariadbSession(database string) (*sql.DB, error) {
	db, err := sql.Open("mysql", "root@unix("+s.socket()+")/"+database+"?multiStatements=true")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func mariadbCounters(v map[string]float64) Counters {
	c := Counters{
		Commits: v["trx_rw_commits"], Fsyncs: v["Innodb_data_fsyncs"], RedoBytes: v["Innodb_os_log_written"],
		TempTables: v["Created_tmp_tables"],
	}
	for name, n := range v {
		switch {
		case strings.HasPrefix(name, "Com_stmt_"), name == "Com_admin_commands", name == "Com_show_status":
			// an execution counts as its statement too; pings are none; looks
		case strings.HasPrefix(name, "Com_"):
			c.Statements += n
		case strings.HasPrefix(name, "Handler_read_"):
			c.RowsRead += n
		}
	}
	return c
}

// postgresStatus is asked of Postgres as its superuser and leaves out what superusers and their database do.
const postgresStatus = `SELECT 'calls', COALESCE(SUM(calls), 0) FROM pg_stat_statements
WHERE userid = (SELECT oid FROM pg_roles WHERE rolname = '` + User + `')
UNION ALL SELECT 'xact_commit', COALESCE(SUM(xact_commit), 0) FROM pg_stat_database WHERE datname <> 'postgres'
UNION ALL SELECT 'tuples', COALESCE(SUM(tup_returned + tup_fetched), 0) FROM pg_stat_database WHERE datname <> 'postgres'
UNION ALL SELECT 'temp_files', COALESCE(SUM(temp_files), 0) FROM pg_stat_database WHERE datname <> 'postgres'
UNION ALL SELECT 'wal_sync', wal_sync FROM pg_stat_wal
UNION ALL SELECT 'wal_bytes', pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')`

func postgresCount(ctx context.Context, s *Server) (map[string]float64, error) {
	if s.counting.cost == nil {
		if err := s.SQL(ctx, "", "SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
			return nil, err
		}
	}
	return s.named(ctx, postgresStatus)
}

func postgresCounters(v map[string]float64) Counters {
	return Counters{
		Statements: v["calls"], Commits: v["xact_commit"], Fsyncs: v["wal_sync"], RedoBytes: v["wal_bytes"],
		RowsRead: v["tuples"], TempTables: v["temp_files"],
	}
}

// named runs a statement whose rows are a name and a number.
func (s *Server) named(ctx context.Context, statements string) (map[string]float64, error) {
	out, err := s.ask(ctx, "", statements)
	if err != nil {
		return nil, err
	}
	return numbers(out, "\t"), nil
}

// numbers reads lines of a name and a number; others are left out.
func numbers(text, separator string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), separator)
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = n
		}
	}
	return out
}

func redisCount(ctx context.Context, s *Server) (map[string]float64, error) {
	text, err := s.redisInfo(ctx, "commandstats", "stats")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":calls=")
		if ok && strings.HasPrefix(name, "cmdstat_") {
			calls, _, _ := strings.Cut(rest, ",")
			maps.Copy(out, numbers(name+":"+calls, ":"))
		}
	}
	for _, name := range []string{"total_reads_processed", "total_net_input_bytes"} {
		out[name] = numbers(text, ":")[name]
	}
	return out, nil
}

func redisCounters(v map[string]float64) Counters {
	c := Counters{Reads: v["total_reads_processed"]}
	for name, n := range v {
		if strings.HasPrefix(name, "cmdstat_") {
			c.Commands += n
		}
	}
	return c
}

// redisInfo is the text of INFO.
func (s *Server) redisInfo(ctx context.Context, sections ...string) (string, error) {
	return s.redisText(ctx, append([]string{"INFO"}, sections...)...)
}

// redisText is the answer of a command that answers one text.
func (s *Server) redisText(ctx context.Context, args ...string) (string, error) {
	conn, err := s.sendRedis(ctx, args...)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // one command, its answer was read
	r := bufio.NewReader(conn)
	head, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	size, err := strconv.Atoi(strings.TrimRight(strings.TrimPrefix(head, "$"), "\r\n"))
	if err != nil {
		return "", errors.New(strings.TrimSpace(head))
	}
	text := make([]byte, size)
	_, err = io.ReadFull(r, text)
	return string(text), err
}

// treeCPU is the processor time of processes, seconds; USER_HZ is 100 on every Linux platform that Go runs on.
func treeCPU(tree []*child.Process) float64 {
	ticks := 0.0
	for _, p := range tree {
		if f := child.StatFields(p.PID); len(f) > 12 {
			user, _ := strconv.ParseFloat(f[11], 64)
			system, _ := strconv.ParseFloat(f[12], 64)
			ticks += user + system
		}
	}
	return ticks / 100
}
