package uploads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// unpacks reports whether a received file is an archive whose files become documents; one that is to be a document's new version is
// refused as that.
func (in *intake) unpacks(f intakeFile) bool {
	return f.err == nil && in.documentID == "" && ingest.IsArchive(f.file.MediaType)
}

// acceptArchives makes the tasks that take the files of archives in.
func (g *Handler) acceptArchives(ctx context.Context, in *intake) {
	for i := range in.files {
		if f := &in.files[i]; in.unpacks(*f) {
			f.accepted, f.err = g.acceptArchive(ctx, in, f.file, i)
			if f.err != nil && !errors.Is(f.err, taskstate.ErrOutcomeUnknown) || f.accepted.Replayed {
				g.Svc.Discard(f.file)
			}
		}
	}
}

func (g *Handler) acceptArchive(ctx context.Context, in *intake, f ingest.ReceivedFile, number int) (ingest.Accepted, error) {
	b, err := g.Svc.Base(ctx, in.who, in.base)
	if errors.Is(err, ingest.ErrBaseNotFound) && (in.base == "" || in.base == ingest.DefaultBase) {
		err = nil // it is made
	}
	if err == nil {
		err = b.MetadataSchema.Fits("metadata", in.metadata)
	}
	if err != nil {
		return ingest.Accepted{}, err
	}
	payload, err := json.Marshal(workflows.Unpacking{File: workflows.FileOf(f), KnowledgeBase: in.base, Metadata: json.RawMessage(in.metadata), Force: in.force})
	if err != nil {
		return ingest.Accepted{}, err
	}
	r := tasks.Request{ID: f.ID, Type: workflow.Type, WorkflowID: workflows.IngestArchive}
	if r.Payload, err = json.Marshal(workflow.Request{Payload: payload}); err != nil {
		return ingest.Accepted{}, err
	}
	if in.key != "" {
		sum := sha256.Sum256(payload)
		r.IdempotencyKey, r.Hash = fmt.Sprintf("%s/%d", in.key, number+1), hex.EncodeToString(sum[:])
	}
	got, errs := g.Svc.Submit(ctx, in.who, r)
	return ingest.Accepted{Task: got[0].Task, Replayed: got[0].Replayed, Waits: got[0].Waits}, errs[0]
}
