package suite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Inspection is what a check of the installation opens: the settings of the services, of which only the database is needed.
type Inspection struct {
	Store     Store
	Queue     Queue
	Kafka     Kafka
	Tasks     Tasks
	Uploads   Uploads
	Vectors   Vectors
	Embedding Embedding
}

// Policy is the state machine's view of the settings.
func (i Inspection) Policy() *taskstate.Policy {
	p := i.Tasks.Policy(i.Queue.owes())
	return &p
}

// Inspected is an open installation. Close it.
type Inspected struct {
	fsck.Evidence
	Embedder ingest.Embedder
	// Without names what the settings do not lead to, and so is not looked at.
	Without []string

	parts *Parts
}

// Close closes what was opened.
func (i *Inspected) Close() { i.parts.Close() }

// Inspect opens what the settings name. Nothing is made that is missing, and no server has to answer yet but the database.
func Inspect(ctx context.Context, env *process.Env, s Inspection) (*Inspected, error) {
	p := &Parts{Env: env}
	out := &Inspected{parts: p}
	if err := p.openStore(ctx, s.Store, Kafka{}, QueueRedis); err != nil {
		return nil, err
	}
	out.DB = p.Store
	err := errors.Join(out.openQueue(s.Queue, s.Kafka), out.openFiles(s.Uploads), out.openVectors(s.Vectors), p.openEmbedder(s.Embedding))
	if err != nil {
		p.Close()
		return nil, err
	}
	out.Embedder = p.Embedder
	return out, nil
}

// DeadLetters tells whether the transport has dead letters: on Kafka always.
func (i Inspection) DeadLetters() bool { return i.Queue.Kind == QueueKafka || i.Queue.DLQKey != "" }

// openQueue opens the transport's queue if there is an address.
func (i *Inspected) openQueue(q Queue, k Kafka) error {
	if q.Kind == QueueKafka {
		return i.openKafka(k)
	}
	if q.RedisURL.Empty() {
		i.Without = append(i.Without, "the queue (REDIS_URL is not set)")
		return nil
	}
	if err := i.parts.openRedis(q); err != nil {
		return err
	}
	i.Queue = queueInspector(i.parts, q)
	return nil
}

// openKafka opens Kafka if there is an address.
func (i *Inspected) openKafka(k Kafka) error {
	if k.Bootstrap == "" {
		i.Without = append(i.Without, "the queue (KAFKA_BOOTSTRAP_SERVERS is not set)")
		return nil
	}
	client, err := kafkaq.NewClient(k.Config())
	if err != nil {
		return fmt.Errorf("KAFKA_*: %w", err)
	}
	i.parts.later(client.Close)
	i.Queue = kafkaq.NewInspector(client)
	return nil
}

// openFiles opens the upload folder if it exists.
func (i *Inspected) openFiles(u Uploads) error {
	if _, err := os.Stat(u.Dir); errors.Is(err, os.ErrNotExist) {
		i.Without = append(i.Without, "the files (UPLOAD_DIR "+u.Dir+" does not exist)")
		return nil
	}
	if err := i.parts.openFiles(u); err != nil {
		return err
	}
	i.Files = i.parts.Files
	return nil
}

// openVectors opens the vector store if the settings lead to one.
func (i *Inspected) openVectors(v Vectors) error {
	_, err := os.Stat(v.Dir)
	switch {
	case v.Kind == "embedded" && errors.Is(err, os.ErrNotExist):
		i.Without = append(i.Without, "the vectors (VECTOR_DIR "+v.Dir+" does not exist)")
		return nil
	case v.Kind != "embedded" && v.URL.Empty():
		i.Without = append(i.Without, "the vectors (CHROMA_BASE_URL is not set)")
		return nil
	}
	if err := i.parts.openVectors(v); err != nil {
		return err
	}
	i.Vectors = i.parts.Vectors
	return nil
}
