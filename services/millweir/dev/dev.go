// Package dev runs the whole suite in one process on embedded parts: SQLite, an in-process Redis or Kafka, vectors on disk.
// What is set in the environment wins over the embedded part (design D16).
package dev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/millweir/millweir/pkg/ingest/extract/pdf/wasm" // reads PDFs
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	kafka "github.com/millweir/millweir/pkg/ingestq/kafkaq/embedded"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // SQLite too
	"github.com/millweir/millweir/pkg/wiring/documents"
	wiring "github.com/millweir/millweir/pkg/wiring/gateway"
	wiredkafka "github.com/millweir/millweir/pkg/wiring/kafka"
	"github.com/millweir/millweir/pkg/wiring/queue"
	"github.com/millweir/millweir/pkg/wiring/relay"
	"github.com/millweir/millweir/pkg/wiring/worker"
	"github.com/millweir/millweir/services/ingest-api/gateway"
	"github.com/millweir/millweir/services/ingest-api/ingestapi"
)

// Config are the settings of all services together.
type Config struct {
	Worker     worker.Settings
	Publishing relay.Publishing
	HTTP       gateway.Config
	Search     wiring.Search
	Tokens     ingestapi.Tokens
	OIDC       ingestapi.OIDC
}

// Validate joins the problems of all parts.
func (c *Config) Validate() error {
	return errors.Join(c.Worker.Validate(), c.HTTP.Validate(), c.Search.Validate(), c.Tokens.Validate(), c.OIDC.Validate())
}

// options are the flags of the verb.
type options struct {
	queue, data, addr string
	rest              []string // for the process
}

// parse reads the verb's own flags, with --env-file at once: what it sets is not replaced by an embedded default.
func parse(args []string) (options, error) {
	o := options{data: "./data"}
	own := map[string]*string{"queue": &o.queue, "data": &o.data, "addr": &o.addr}
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		to := own[name]
		if to == nil && name != "env-file" {
			o.rest = append(o.rest, args[i])
			continue
		}
		if !inline {
			if i++; i == len(args) {
				return o, fmt.Errorf("--%s needs a value", name)
			}
			value = args[i]
		}
		if to != nil {
			*to = value
		} else if err := process.LoadEnvFile(value); err != nil {
			return o, err
		}
	}
	if o.queue != "" && o.queue != queue.Redis && o.queue != queue.Kafka {
		return o, fmt.Errorf("--queue %s: allowed is redis|kafka", o.queue)
	}
	return o, nil
}

// Run is `millweir dev`; it returns the exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "millweir dev:", err)
		return process.ExitUsage
	}
	if !help(o.rest) {
		stop, err := defaults(o)
		if err != nil {
			_, _ = fmt.Fprintln(stderr, "millweir dev:", err)
			return process.ExitFailed
		}
		defer stop()
	}
	return process.Run(ctx, process.Spec{Name: "millweir dev"}, process.IO{Args: o.rest, Stdout: stdout, Stderr: stderr}, body)
}

// help reports whether the process will only print something.
func help(args []string) bool {
	for _, a := range args {
		switch strings.TrimLeft(a, "-") {
		case "h", "help", "help-env", "version":
			return true
		}
	}
	return false
}

// defaults sets what is not set to the embedded parts under the data folder, and starts the in-process queue.
func defaults(o options) (stop func(), err error) {
	if err := os.MkdirAll(o.data, 0o750); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	stop = func() {}
	wished := map[string]string{"INGEST_QUEUE": o.queue, "HTTP_ADDR": o.addr} // by flags
	for name, value := range wished {
		if value == "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return stop, err
		}
	}
	set := map[string]string{
		"UPLOAD_DIR": filepath.Join(o.data, "uploads"),
		"VECTOR_DIR": filepath.Join(o.data, "vectors"),
		"AUTH_MODE":  "none",
	}
	if os.Getenv("MYSQL_DSN") == "" {
		set["DATABASE_URL"] = "sqlite:" + filepath.Join(o.data, "millweir.db")
	}
	switch { // what is set decides (design D16); chroma is the services' own default
	case os.Getenv("CHROMA_BASE_URL") != "":
	case os.Getenv("PGVECTOR_URL") != "":
		set["VECTOR_STORE"] = "pgvector"
	case os.Getenv("QDRANT_URL") != "":
		set["VECTOR_STORE"] = "qdrant"
	default:
		set["VECTOR_STORE"] = "embedded"
	}
	name, start := "REDIS_URL", embedded.Start
	if os.Getenv("INGEST_QUEUE") == queue.Kafka {
		name, start = "KAFKA_BOOTSTRAP_SERVERS", startKafka
	}
	if os.Getenv(name) == "" {
		address, stopQueue, err := start()
		if err != nil {
			return stop, err
		}
		set[name], stop = address, stopQueue
	}
	for name, value := range set {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return stop, err
		}
	}
	return stop, nil
}

// kafkaPartitions are those of the in-process Kafka: enough to see that there are some.
const kafkaPartitions = 4

// startKafka serves Kafka in this process, with the topics of deliveries and dead letters.
func startKafka() (bootstrap string, stop func(), err error) {
	broker, err := kafka.Start()
	if err != nil {
		return "", nil, err
	}
	topic := cmp.Or(os.Getenv("INGEST_KAFKA_TOPIC"), kafkaq.DefaultTopic)
	if err := errors.Join(broker.Topic(topic, kafkaPartitions), broker.Topic(outbox.DLQTopic(topic), 1)); err != nil {
		broker.Stop()
		return "", nil, err
	}
	return broker.Bootstrap(), broker.Stop, nil
}

// body migrates the database and runs every service over one set of parts.
func body(ctx context.Context, env *process.Env, cfg *Config) error {
	parts, err := documents.Open(ctx, env, cfg.Worker.Shared)
	if err != nil {
		return err
	}
	defer parts.Close()
	if _, err := parts.Store.Migrate(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	services, err := worker.Services(parts, &cfg.Worker, worker.RoleAll)
	if err != nil {
		return err
	}
	if transport := wiredkafka.Of(parts.Transports); transport != nil {
		sender, err := relay.Service(env, parts.Database, transport, cfg.Publishing, cfg.Worker.Shared.Kafka)
		if err != nil {
			return err
		}
		services = append(services, sender)
	}
	api, addr, err := ingestapi.Services(ctx, parts, &ingestapi.Config{Shared: cfg.Worker.Shared, HTTP: cfg.HTTP, Search: cfg.Search, Tokens: cfg.Tokens, OIDC: cfg.OIDC})
	if err != nil {
		return err
	}
	services = append(services, api...)
	services = append(services, process.Named("hello", process.ServiceFunc(func(ctx context.Context) error {
		greet(env.Stdout, addr)
		<-ctx.Done()
		return nil
	})))
	return process.RunAll(ctx, services...)
}

// greet prints the line that scripts wait for, and what to try.
func greet(w io.Writer, addr string) {
	_, _ = fmt.Fprintf(w, "ready http://%s\n", addr)
	_, _ = fmt.Fprintf(w, "console http://%s/console\n", addr)
	_, _ = fmt.Fprintf(w, "try:  curl -F file=@README.md http://%s/api/knowledge/documents/upload-async\n", addr)
}
