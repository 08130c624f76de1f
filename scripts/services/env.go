package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/millweir/millweir/pkg/labserver"
)

// writeEnvFile replaces the file in one step, so that nobody reads half of it.
func (f *fleet) writeEnvFile(path string) error {
	var b bytes.Buffer
	if err := f.writeEnv(&b); err != nil {
		return err
	}
	part := path + ".part"
	if err := os.WriteFile(part, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// writeEnv writes the settings for every server that runs, also those that this call did not choose.
// Values are quoted, so that a shell can source the file as well.
func (f *fleet) writeEnv(w io.Writer) error {
	running := map[labserver.Kind]*labserver.Server{}
	for _, m := range members {
		port, err := portOf(m)
		if err != nil {
			return err
		}
		m.port = port
		if s, ok := labserver.Attach(m.kind, f.options(m)); ok {
			running[m.kind] = s
		}
	}
	out := &bytes.Buffer{}
	line := func(comment, name, value string) { fmt.Fprintf(out, "%s%s='%s'\n", comment, name, value) }
	fmt.Fprintln(out, "# Written by `make services-up`; use it with --env-file, or in a shell: set -a; . .run/services.env; set +a")
	f.databaseLines(running, line)
	if s := running[labserver.KindRedis]; s != nil {
		line("", "REDIS_URL", s.URL(""))
	}
	vectors := "embedded"
	if s := running[labserver.KindChroma]; s != nil {
		line("", "CHROMA_BASE_URL", s.URL(""))
		vectors = "chroma"
	}
	if s := running[labserver.KindKafka]; s != nil {
		line("", "KAFKA_BOOTSTRAP_SERVERS", s.URL(""))
	}
	if s := running[labserver.KindRabbitMQ]; s != nil {
		line("", "RABBITMQ_URL", s.URL(""))
	}
	line("", "INGEST_QUEUE", "redis")
	line("", "VECTOR_STORE", vectors)
	line("", "AUTH_MODE", "none")
	line("", "UPLOAD_DIR", filepath.Join(f.dir, "uploads"))
	_, err := w.Write(out.Bytes())
	return err
}

func (f *fleet) databaseLines(running map[labserver.Kind]*labserver.Server, line func(comment, name, value string)) {
	comment := ""
	if s := running[labserver.KindMariaDB]; s != nil {
		line("", "MYSQL_DSN", s.DSN(database))
		comment = "# " // one of the two: for Postgres, comment MYSQL_DSN out and this in
	}
	if s := running[labserver.KindPostgres]; s != nil {
		line(comment, "DATABASE_URL", s.URL(database))
	}
}
