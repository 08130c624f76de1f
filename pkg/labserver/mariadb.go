package labserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

// mariadbClass runs mariadbd, or a server in its place (installed.UnstableVariable), with durable commits and otherwise the
// server's own defaults: the isolation level stays REPEATABLE READ, since our code must set what it needs by itself.
func mariadbClass() class {
	return class{
		prepare: mariadbPrepare, commands: mariadbCommands, probe: mariadbProbe, settle: mariadbSettle,
		url: func(s *Server, db string) string {
			return fmt.Sprintf("mysql://%s:%s@%s/%s", User, Password, s.Addr, db)
		},
		stop:  syscall.SIGTERM,
		count: mariadbCount, counters: mariadbCounters,
	}
}

func (s *Server) data() string   { return filepath.Join(s.Dir, "data") }
func (s *Server) socket() string { return filepath.Join(s.Dir, "s") }

// temp is the server's alone: a MariaDB that starts removes every "#sql*" from its folder for temporary tables, and one
// that is just opening such a table of its own dies when it is gone (SIGSEGV in ha_maria::drop_table, 10.11.19).
func (s *Server) temp() string { return filepath.Join(s.Dir, "tmp") }

func mariadbPrepare(ctx context.Context, s *Server) error {
	if err := errors.Join(os.MkdirAll(s.temp(), 0o755), child.GiveTo(s.temp(), "mysql")); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.data(), "mysql")); err == nil {
		return nil
	}
	p, err := mysqlPrograms()
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, p.server[0], append(p.server[1:], "--version")...).Output()
	if err != nil {
		return fmt.Errorf("version of %s: %w", p.server, err)
	}
	sum := sha256.Sum256(version)
	err = template(ctx, "mariadb-"+hex.EncodeToString(sum[:6]), s.data(), func(ctx context.Context, dst string) error {
		if err := errors.Join(os.MkdirAll(dst, 0o755), child.GiveTo(dst, "mysql")); err != nil {
			return err
		}
		args := append(p.install[1:], "--datadir="+dst, "--tmpdir="+s.temp())
		return child.Command{Path: p.install[0], User: p.user, Dir: dst, Args: args}.Run(ctx)
	})
	if err != nil {
		return fmt.Errorf("make the data folder %s: %w", s.data(), err)
	}
	return child.GiveTo(s.Dir, "mysql")
}

// programs begin a server and make an empty data folder for it, as a user of the system; "" is who runs the tests.
type programs struct {
	server, install []string
	user            string
}

func mysqlPrograms() (programs, error) {
	if unstable := os.Getenv(installed.UnstableVariable); unstable != "" {
		return unstablePrograms(unstable)
	}
	server, err := installed.Program("mariadbd", "mariadb-server")
	if err != nil {
		return programs{}, err
	}
	install, err := installed.Program("mariadb-install-db", "mariadb-server")
	const log = "--innodb-log-file-size=48M"
	return programs{
		server:  []string{server, "--no-defaults", log},
		install: []string{install, "--no-defaults", log, "--auth-root-authentication-method=normal", "--skip-test-db"},
		user:    "mysql",
	}, err
}

// unstablePrograms are run as whoever runs the tests: the cache may be a folder that only root opens.
func unstablePrograms(server string) (programs, error) {
	command, home, err := installed.Unstable(server)
	if err != nil {
		return programs{}, err
	}
	command = append(command, "--no-defaults", "--user=root", "--basedir="+filepath.Join(home, "usr"))
	if server == "mysql" {
		command = append(command, "--innodb-redo-log-capacity=96M")
		return programs{ // plans are read as tables; secure-file-priv is a folder of the package's that is missing here
			server:  append(slices.Clip(command), "--mysqlx=OFF", "--secure-file-priv=NULL", "--explain-format=TRADITIONAL"),
			install: append(slices.Clip(command), "--initialize-insecure"),
		}, nil
	}
	share := filepath.Join(home, "usr/share/mariadb")
	command = append(command, "--lc-messages-dir="+share, "--character-sets-dir="+filepath.Join(share, "charsets"), "--innodb-log-file-size=48M")
	// What mariadb-install-db does, which runs only inside its system.
	const install = `{ printf 'CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n'
		cd "$0" && cat mariadb_system_tables.sql mariadb_performance_tables.sql mariadb_system_tables_data.sql \
			maria_add_gis_sp_bootstrap.sql mariadb_sys_schema.sql; } | "$@" --bootstrap`
	return programs{server: command, install: append([]string{"/bin/sh", "-c", install, share}, command...)}, nil
}

func mariadbCommands(s *Server) ([]child.Command, error) {
	p, err := mysqlPrograms()
	if err != nil {
		return nil, err
	}
	args := append(p.server[1:], "--datadir="+s.data(), "--tmpdir="+s.temp(),
		"--socket="+s.socket(), "--pid-file="+filepath.Join(s.Dir, "m.pid"),
		"--port="+strconv.Itoa(s.Port), "--bind-address="+loopback, "--skip-name-resolve",
		"--character-set-server=utf8mb4", "--collation-server=utf8mb4_unicode_ci",
		"--innodb-buffer-pool-size=128M", "--innodb-flush-log-at-trx-commit=1",
		"--innodb-lock-wait-timeout=10", "--max-connections=300", "--max-allowed-packet=64M",
		"--sql-mode=STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
		"--innodb-monitor-enable=trx_rw_commits", // for Counters
	)
	return []child.Command{{Path: p.server[0], Args: append(args, s.opts.Args...), User: p.user, Dir: s.Dir}}, nil
}

// mariadbProbe waits for the server's greeting: protocol version 10 comes when it takes connections. MySQL refuses this host by an
// error, 255, as long as no user may come from it.
func mariadbProbe(ctx context.Context, s *Server) error {
	head := make([]byte, 5)
	if err := talk(ctx, s.Addr, nil, head); err != nil {
		return err
	}
	if head[4] != 10 && head[4] != 255 {
		return fmt.Errorf("greeting begins with %d, want 10 or 255", head[4])
	}
	return nil
}

func mariadbSettle(ctx context.Context, s *Server) error {
	marker := filepath.Join(s.Dir, "settled")
	if _, err := os.Stat(marker); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sql := fmt.Sprintf("CREATE USER IF NOT EXISTS %s@'%s' IDENTIFIED BY '%s'; GRANT ALL ON *.* TO %s@'%s' WITH GRANT OPTION;",
		User, loopback, Password, User, loopback)
	if s.opts.Database != "" {
		sql += fmt.Sprintf("CREATE DATABASE IF NOT EXISTS `%s`;", s.opts.Database)
	}
	if err := s.SQL(ctx, "", sql); err != nil {
		return err
	}
	return os.WriteFile(marker, nil, 0o644)
}

// SQL runs statements as the superuser of a MariaDB or Postgres server through its command-line client.
// database "" is none (MariaDB) or postgres. It is for setting tests up; products use their drivers.
func (s *Server) SQL(ctx context.Context, database, statements string) error {
	_, err := s.ask(ctx, database, statements)
	return err
}

// ask is SQL, and returns the rows: a line for each, columns parted by tabs.
func (s *Server) ask(ctx context.Context, database, statements string) (string, error) {
	var c child.Command
	var err error
	switch s.Kind {
	case KindMariaDB:
		c.Path, err = installed.Program("mariadb", "mariadb-client")
		c.Args = []string{"--no-defaults", "-uroot", "-N", "-B", "-S", s.socket(), "-e", statements}
		if database != "" {
			c.Args = append(c.Args, database)
		}
	case KindPostgres, KindPGVector:
		if database == "" {
			database = "postgres"
		}
		c.Path, err = installed.Postgres("psql")
		c.Args = []string{
			"-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h", loopback, "-p", strconv.Itoa(s.Port),
			"-U", "postgres", "-d", database, "-c", statements,
		}
	default:
		return "", fmt.Errorf("%s knows no SQL", s.Kind)
	}
	if err != nil {
		return "", err
	}
	return c.Output(ctx)
}

// talk connects, sends hello (if any) and reads len(answer) bytes.
func talk(ctx context.Context, addr string, hello, answer []byte) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // a probe has nothing to lose
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, answer)
	return err
}
