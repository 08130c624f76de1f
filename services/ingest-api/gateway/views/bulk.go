package views

import (
	"github.com/millweir/millweir/pkg/tasks/bulk"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// BulkOperation renders a bulk operation.
func BulkOperation(op bulk.Operation) wire.BulkOperation {
	v := wire.BulkOperation{
		OperationID: op.ID, Action: string(op.Action), Filter: op.Filter, Reason: op.Reason, RatePerSecond: op.PerSecond, UserID: op.Scope.UserID,
		Status: op.Task.Status, Done: op.Done, Failed: op.Failed, Skipped: op.Skipped, ErrorMessage: wire.NullText(op.Task.ErrorMessage),
		CreatedAt: wire.At(op.CreatedAt), UpdatedAt: wire.At(op.UpdatedAt),
	}
	if op.Matched >= 0 {
		v.Matched = &op.Matched
	}
	return v
}

// BulkPreview renders what an operation would do.
func BulkPreview(p bulk.Preview) wire.BulkPreview {
	return wire.BulkPreview{
		Matched: p.Matched, Eligible: p.Eligible, Skipped: p.Skipped, Judged: p.Looked, Refused: p.Refused, Sample: web.Each(p.Sample, Task),
	}
}
