package world

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/taskstate"
)

// effectsPath is where the fake embedding service writes what it was asked.
func (w *World) effectsPath() string { return filepath.Join(w.Dir, "effects.jsonl") }

// acksPath is where the acknowledgements that Redis got are written.
func (w *World) acksPath() string { return filepath.Join(w.Dir, "acks.jsonl") }

// movesPath is where the steps of partitioned queues are written.
func (w *World) movesPath() string { return filepath.Join(w.Dir, "moves.jsonl") }

// keepEvidence begins to write down what the embedding service and Redis are asked.
func (w *World) keepEvidence() (err error) {
	if !w.opts.Evidence {
		return nil
	}
	if w.opts.Embedder != nil && w.opts.Embedder.Log == nil {
		if w.effects, err = os.Create(w.effectsPath()); err != nil {
			return err
		}
		opts := *w.opts.Embedder
		opts.Log = w.effects
		w.opts.Embedder = &opts
	}
	if !w.opts.Alone && w.hasRedis() {
		w.acks, err = os.Create(w.acksPath())
		if err == nil && w.opts.Partitions > 1 {
			w.moves, err = os.Create(w.movesPath())
		}
	}
	return err
}

// endEvidence closes what keepEvidence began; every line was written through.
func (w *World) endEvidence() {
	if w.probe != nil {
		w.probe.Stop()
	}
	if w.stopAcks != nil {
		_ = w.stopAcks()
	}
	for _, f := range []*os.File{w.effects, w.acks, w.moves} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// Policy is what the services were told, or nil when two of them were told different things.
func (w *World) Policy() *taskstate.Policy {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := policyOf(w.opts.Env)
	for i, env := range w.told {
		one := policyOf(env)
		if i > 0 && one != p {
			return nil
		}
		p = one
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	return &taskstate.Policy{BaseBackoff: ms(p.base), MaxBackoff: ms(p.most), Lease: ms(p.lease), MaxCrashes: p.crashes}
}

// rules are the settings that a log is judged by.
type rules struct{ base, most, lease, crashes int }

// policyOf reads the settings of a process; the defaults are those of contract §7.
func policyOf(env []string) rules {
	p := rules{base: 1000, most: 600_000, lease: 30_000, crashes: 3}
	for _, setting := range env {
		name, value, _ := strings.Cut(setting, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			continue
		}
		switch name {
		case "INGEST_REDIS_RETRY_BASE_BACKOFF_MS":
			p.base = n
		case "INGEST_REDIS_RETRY_MAX_BACKOFF_MS":
			p.most = n
		case "INGEST_LEASE_MS":
			p.lease = n
		case "INGEST_MAX_CRASHES":
			p.crashes = n
		}
	}
	return p
}

// copies goes round the copies in RabbitMQ and leaves them there.
func (w *World) copies() (func(ctx context.Context, met func(task string, row taskstate.Status)) error, error) {
	m, err := mirror.New(mirror.NewDefaultConfig(w.rabbitURL()), mirror.Deps{DB: w.DB, Name: "lab", Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	if err != nil {
		return nil, err
	}
	return m.Look, nil
}

// Evidence adds what a world keeps: files, effects, acknowledgements, logs.
func (w *World) Evidence(e *fsck.Evidence) ([]io.Closer, error) {
	var closers []io.Closer
	open := func(path string) (io.Reader, error) {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err == nil {
			closers = append(closers, f)
		}
		return f, err
	}
	uploads := w.Uploads()
	if w.opts.Alone {
		uploads = filepath.Join(w.Data(), "uploads")
	}
	if w.OnKafka() {
		client, err := w.openKafka()
		if err != nil {
			return closers, err
		}
		closers, e.Queue = append(closers, client), kafkaq.NewInspector(client)
	}
	if w.Rabbit != nil || w.RabbitNodes != nil {
		look, err := w.copies()
		if err != nil {
			return closers, err
		}
		e.Copies = look
	}
	folder, err := files.Open(uploads)
	if err != nil {
		return closers, err
	}
	closers, e.Files = append(closers, folder), folder
	for path, to := range map[string]*io.Reader{w.effectsPath(): &e.Effects, w.acksPath(): &e.Acks, w.movesPath(): &e.Moves} {
		if *to, err = open(path); err != nil {
			return closers, err
		}
	}
	logs, err := filepath.Glob(filepath.Join(w.Dir, "*.log"))
	if err != nil {
		return closers, err
	}
	e.Logs = map[string]io.Reader{}
	for _, path := range logs {
		if e.Logs[filepath.Base(path)], err = open(path); err != nil {
			return closers, err
		}
	}
	return closers, nil
}
