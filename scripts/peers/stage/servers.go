// Package stage has what stands around the systems while they are measured: real servers, their counters, the
// programs of the systems, and the installation of those that are not Go.
package stage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/labserver"
)

// Server is one of the servers that systems use.
type Server string

// The servers. Redis comes twice, since how often it writes to the disk is what its rivals differ by most.
const (
	MariaDB       Server = "mariadb"
	Postgres      Server = "postgres"
	RedisEverysec Server = "redis"
	RedisAlways   Server = "redis-always"
)

// database is made on MariaDB and Postgres.
const database = "peers"

// specs are the servers with what is asked of them: durable commits, and room enough that no buffer is the limit.
var specs = map[Server]struct {
	kind labserver.Kind
	args []string
}{
	MariaDB: {labserver.KindMariaDB, []string{
		"--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M", "--innodb-flush-method=O_DIRECT", "--innodb-doublewrite=ON",
		"--innodb-flush-log-at-trx-commit=1", "--max-connections=400",
	}},
	Postgres: {labserver.KindPostgres, []string{
		"-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "full_page_writes=on", "-c", "shared_buffers=512MB",
		"-c", "max_wal_size=4GB",
	}},
	RedisEverysec: {labserver.KindRedis, []string{"--appendfsync", "everysec"}},
	RedisAlways:   {labserver.KindRedis, []string{"--appendfsync", "always"}},
}

// Servers are those that run.
type Servers map[Server]*labserver.Server

// Start starts the servers with their data below dir. After an error none is left.
func Start(ctx context.Context, dir string, which []Server) (Servers, error) {
	started := make([]*labserver.Server, len(which))
	var g errgroup.Group
	for i, name := range which {
		g.Go(func() (err error) {
			spec := specs[name]
			started[i], err = labserver.Start(ctx, spec.kind, labserver.Options{
				Dir: filepath.Join(dir, string(name)), Database: database, Args: spec.args,
			})
			return err
		})
	}
	err := g.Wait()
	servers := Servers{}
	for i, s := range started {
		if s != nil {
			servers[which[i]] = s
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start servers: %w", err), servers.Stop(context.WithoutCancel(ctx)))
	}
	return servers, nil
}

// Stop ends them. Their data is thrown away, so it does not wait for an orderly end.
func (s Servers) Stop(ctx context.Context) error {
	var errs []error
	for _, server := range s {
		errs = append(errs, server.Kill(ctx))
	}
	return errors.Join(errs...)
}

// Addr is host:port of a server, "" when it does not run.
func (s Servers) Addr(name Server) string {
	if s[name] == nil {
		return ""
	}
	return s[name].Addr
}

// DSN is the data source name or URL with the database; "" when it does not run.
func (s Servers) DSN(name Server) string {
	if s[name] == nil {
		return ""
	}
	return s[name].DSN("")
}
