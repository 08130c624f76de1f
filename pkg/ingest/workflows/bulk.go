package workflows

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/tasks/bulk"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

const bulkSchema = `{"type": "object", "additionalProperties": false}`

// NewBulk makes the bulk operations over an application.
func NewBulk(a *app.App, store taskstate.Database) *bulk.Operations {
	return bulk.New(BulkDeps(a, store))
}

// BulkDeps are what bulk operations work with in an application.
func BulkDeps(a *app.App, store taskstate.Database) bulk.Deps {
	return bulk.Deps{
		Store: store, Door: a.Service,
		Reason: func(err error) string {
			switch {
			case errors.Is(err, ingest.ErrReplaySuperseded):
				return "SUPERSEDED"
			case errors.Is(err, ingest.ErrDocumentDeleted):
				return "DOCUMENT_DELETED"
			}
			return ""
		},
		Delete: func(ctx context.Context, c tasks.Caller, documentID string) (bool, error) {
			err := a.DeleteDocument(ctx, c, documentID)
			if errors.Is(err, ingest.ErrDocumentNotFound) {
				return true, nil
			}
			return false, err
		},
		Reindex: func(documentID, key string) tasks.Request {
			payload, _ := json.Marshal(map[string]any{"payload": map[string]string{"documentId": documentID}}) // texts are always JSON
			return tasks.Request{Type: workflow.Type, WorkflowID: IngestDocument, ChatID: documentID, Payload: payload, IdempotencyKey: key}
		},
	}
}

// bulk runs a bulk operation.
func (d *doors) bulk(ctx context.Context, r workflow.Run) (json.RawMessage, error) {
	done, err := d.operations.Run(ctx, r.Task, r.Report)
	if errors.Is(err, bulk.ErrGone) {
		return nil, workflow.Permanent("BULK_OPERATION_NOT_FOUND", "Ask for the operation again: POST /api/knowledge/bulk.", "%s", err)
	}
	if err != nil {
		return nil, failureOf(err)
	}
	return json.Marshal(done)
}
