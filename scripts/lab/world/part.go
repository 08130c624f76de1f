package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab/proc"
)

// Part is a world on the servers of w whose database, Redis database, uploads and processes are its own.
// number is 1–15 and different for each; its options about servers count for nothing. Close it before w.
func (w *World) Part(ctx context.Context, number int, opts Options) (*World, error) {
	p := &World{
		Dir: filepath.Join(w.bench.Run, opts.Name), SQL: w.SQL, Redis: w.Redis, Kafka: w.Kafka, Rabbit: w.Rabbit, Chroma: w.Chroma,
		bench: w.bench, opts: opts, part: number, seq: map[string]int{},
	}
	err := errors.Join(os.RemoveAll(p.Dir), os.MkdirAll(p.Dir, 0o755))
	if err == nil {
		err = p.keepEvidence()
	}
	if err == nil && opts.Embedder != nil {
		p.Embed, err = embedtest.NewServer(*p.opts.Embedder)
	}
	if err == nil {
		err = w.SQL.SQL(ctx, "", "CREATE DATABASE "+p.sqlName())
	}
	if err == nil {
		err = p.open(ctx)
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("world %s: %w", opts.Name, err)
	}
	return p, nil
}

// sqlName is the world's database; "" is the one that the server was started with.
func (w *World) sqlName() string {
	if w.part == 0 {
		return ""
	}
	return database + "_" + strconv.Itoa(w.part)
}

// redisName is the number of the world's Redis database.
func (w *World) redisName() string { return strconv.Itoa(w.part) }

// Command starts `millweir` with arguments, on the world's servers.
func (w *World) Command(args []string, env ...string) (*proc.Proc, error) {
	return w.start("millweir", args, w.serverEnv(), env)
}
