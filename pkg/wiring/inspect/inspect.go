// Package inspect opens an installation for a check: the settings of the services, of which only the database is needed.
package inspect

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/documents"
	_ "github.com/millweir/millweir/pkg/wiring/kafka" // one of the two carries deliveries
	mirrorwiring "github.com/millweir/millweir/pkg/wiring/mirror"
	"github.com/millweir/millweir/pkg/wiring/queue"
	_ "github.com/millweir/millweir/pkg/wiring/redis"
)

// Settings say what a check of the installation opens: those of the services, of which it needs less (only RabbitMQ's are validated).
type Settings struct {
	Shared documents.Shared
	Rabbit mirrorwiring.Rabbit
}

// Policy is the state machine's view of the settings.
func (s Settings) Policy() *taskstate.Policy { return new(s.Shared.Policy()) }

// Inspected is an open installation. Close it.
type Inspected struct {
	fsck.Evidence
	Embedders []ingest.Embedder
	// Without names what the settings do not lead to, and so is not looked at.
	Without []string
	// Store is the database itself, Keeps says what the queue keeps of what it has acknowledged; nil: it is not looked at.
	Store *taskstore.Store
	Keeps func(ctx context.Context) (string, error)
	// Versions return the servers that are looked at, and their versions; empty: it does not tell.
	Versions []wiring.VersionFunc

	parts *documents.Parts
}

// Close closes what was opened.
func (i *Inspected) Close() { i.parts.Close() }

// Open opens what the settings name. Nothing is made that is missing, and no server has to answer yet but the database.
func Open(ctx context.Context, env *process.Env, s Settings) (*Inspected, error) {
	p := &documents.Parts{Base: wiring.New(env)}
	out := &Inspected{parts: p}
	shared := s.Shared
	db, err := database.Connect(ctx, p.Base, shared.Store, nil)
	if err != nil {
		return nil, err
	}
	out.DB, out.Store = db.Store, db.Store
	out.Versions = append(out.Versions, db.Store.ServerVersion)
	err = errors.Join(out.openQueue(shared.Queue, shared.Kafka), out.openFiles(shared.Uploads), out.openVectors(shared.Vectors.In(shared.Store)), p.OpenEmbedder(shared.Embedding),
		out.openCopies(db.Store, env, s.Rabbit))
	if err != nil {
		p.Close()
		return nil, err
	}
	out.Embedders = append([]ingest.Embedder{p.Embedder}, p.Earlier...)
	return out, nil
}

// DeadLetters tells whether the transport has dead letters: on Kafka always.
func (s Settings) DeadLetters() bool {
	return s.Shared.Queue.Kind == queue.Kafka || s.Shared.Queue.DLQKey != ""
}

// openQueue opens the transport's queue if there is an address.
func (i *Inspected) openQueue(q queue.Settings, k queue.KafkaSettings) error {
	set, err := queue.Open(i.parts.Base, q, k)
	if err != nil {
		return err
	}
	if t, ok := set[q.Kind]; ok {
		i.Queue, i.Keeps = t.Inspector(), t.Keeps
		i.Versions = append(i.Versions, t.Version)
		return nil
	}
	name := map[string]string{queue.Redis: "REDIS_URL", queue.Kafka: "KAFKA_BOOTSTRAP_SERVERS"}[q.Kind]
	i.Without = append(i.Without, "the queue ("+name+" is not set)")
	return nil
}

// openCopies says how the copies in RabbitMQ are looked at, if there is an address.
func (i *Inspected) openCopies(db taskstate.Database, env *process.Env, r mirrorwiring.Rabbit) error {
	if r.URL.Empty() {
		return nil // few have them; the rule says that it was not judged
	}
	m, err := mirror.New(r.Config(), mirror.Deps{DB: db, Name: "fsck", Log: env.Log, Clock: time.Now})
	if err == nil {
		i.Copies = m.Look
		i.Versions = append(i.Versions, m.Version)
	}
	return err
}

// openFiles opens the upload folder if it exists.
func (i *Inspected) openFiles(u documents.Uploads) error {
	if _, err := os.Stat(u.Dir); errors.Is(err, os.ErrNotExist) {
		i.Without = append(i.Without, "the files (UPLOAD_DIR "+u.Dir+" does not exist)")
		return nil
	}
	if err := i.parts.OpenFiles(u); err != nil {
		return err
	}
	i.Files = i.parts.Files
	return nil
}

// openVectors opens the vector store if the settings lead to one.
func (i *Inspected) openVectors(v documents.Vectors) error {
	_, err := os.Stat(v.Dir)
	switch {
	case v.Kind == "embedded" && errors.Is(err, os.ErrNotExist):
		i.Without = append(i.Without, "the vectors (VECTOR_DIR "+v.Dir+" does not exist)")
		return nil
	case v.Missing() != "":
		i.Without = append(i.Without, "the vectors ("+v.Missing()+" is not set)")
		return nil
	}
	if err := i.parts.OpenVectors(v); err != nil {
		return err
	}
	i.Vectors = i.parts.Vectors
	if server, ok := i.Vectors.(interface {
		Version(ctx context.Context) (product, version string, err error)
	}); ok { // Chroma, Qdrant; the others are files, or in a database
		i.Versions = append(i.Versions, server.Version)
	}
	return nil
}
