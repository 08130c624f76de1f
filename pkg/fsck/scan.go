package fsck

import (
	"context"
	"strings"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// tasks reads a page of rows after an id.
func (c *checker) tasks(ctx context.Context, query string, args ...any) ([]taskstate.Task, error) {
	var out []taskstate.Task
	err := c.each(ctx, query, args, func(scan func(...any) error) error {
		t, err := scanTask(scan)
		out = append(out, t)
		return err
	})
	return out, err
}

// tasksByID reads rows by their ids.
func (c *checker) tasksByID(ctx context.Context, ids []string) ([]taskstate.Task, error) {
	return c.tasks(ctx, c.q.List("TasksByID", len(ids)), sqldb.Args(ids)...)
}

// scanTask reads the columns of Tasks.
func scanTask(scan func(...any) error) (taskstate.Task, error) {
	var t taskstate.Task
	var retry, lease, wake, enqueued, created, updated taskstate.DBTime
	err := scan(&t.ID, &t.UserID, &t.DocumentID, &t.Type, &t.Channel, &t.Status, &t.AttemptCount, &t.MaxAttempts, &t.CrashCount, &t.Fence,
		&retry, &t.LastError, &t.ErrorMessage, &t.LeaseOwner, &lease, &wake, &enqueued,
		&t.EnqueueCount, &t.DLQ, &t.Delivery, &t.IdempotencyKey, &t.RequestHash, &created, &updated)
	t.LeaseOwner, t.Delivery = strings.TrimSpace(t.LeaseOwner), strings.TrimSpace(t.Delivery)
	t.NextRetryAt, t.LeaseExpiresAt, t.WakeAt, t.EnqueuedAt = retry.Time, lease.Time, wake.Time, enqueued.Time
	t.CreatedAt, t.UpdatedAt = created.Time, updated.Time
	return t, err
}

// scanTransition reads the columns of Logs.
func scanTransition(scan func(...any) error) (taskstate.Transition, error) {
	var tr taskstate.Transition
	var lease, retry, created taskstate.DBTime
	err := scan(&tr.ID, &tr.TaskID, &tr.From, &tr.To, &tr.Reason, &tr.AttemptCount, &tr.CrashCount, &tr.Fence, &tr.Epoch,
		&tr.Actor, &tr.Message, &lease, &retry, &tr.Delivery, &created)
	tr.LeaseExpiresAt, tr.NextRetryAt, tr.CreatedAt = lease.Time, retry.Time, created.Time
	return tr, err
}

// documentRow is a document as its own row has it.
type documentRow struct {
	id, user, base, status, visible, sha string
	same                                 string // the bytes that it is found by; empty: another document is
	baseUser, latest                     string // whose base it is in, and the task of its newest upload
	visibleNo, lastUpload                int64
	segments, pass                       int
	deleted                              bool
	updated                              taskstate.DBTime
}

// scanDocument reads the columns of Documents.
func scanDocument(scan func(...any) error) (documentRow, error) {
	var d documentRow
	err := scan(&d.id, &d.user, &d.base, &d.status, &d.visible, &d.visibleNo, &d.segments, &d.sha, &d.same, &d.lastUpload,
		&d.deleted, &d.pass, &d.updated, &d.baseUser, &d.latest)
	return d, err
}

// documents reads rows of documents.
func (c *checker) documents(ctx context.Context, query string, args ...any) ([]documentRow, error) {
	var out []documentRow
	err := c.each(ctx, query, args, func(scan func(...any) error) error {
		d, err := scanDocument(scan)
		out = append(out, d)
		return err
	})
	return out, err
}

// versionRow is a version with the state of its task and its file.
type versionRow struct {
	id, document, base, task, state string
	model, extractor, splitter      string
	taskStatus                      taskstate.Status
	file, sha                       string // of the stored file's row; empty: there is none
	fileID                          string // that the version names; empty: none
	taskUser, fileUser              string // empty: there is no row
	no, upload                      int64
	dim, segments, pass             int
	created, updated, closed        taskstate.DBTime
}

// versionsOf reads the versions of documents, by document, in the order of their numbers.
func (c *checker) versionsOf(ctx context.Context, documents []string) (map[string][]versionRow, error) {
	out := map[string][]versionRow{}
	err := c.each(ctx, c.q.List("VersionsOf", len(documents)), sqldb.Args(documents), func(scan func(...any) error) error {
		var v versionRow
		err := scan(&v.id, &v.document, &v.base, &v.task, &v.no, &v.state, &v.model, &v.dim, &v.extractor, &v.splitter, &v.segments,
			&v.created, &v.updated, &v.closed, &v.pass, &v.taskStatus, &v.file, &v.sha,
			&v.fileID, &v.upload, &v.taskUser, &v.fileUser)
		v.fileID = strings.TrimSpace(v.fileID)
		out[v.document] = append(out[v.document], v)
		return err
	})
	return out, err
}

// segmentRow is a piece of a version without its text.
type segmentRow struct {
	index                     int
	hash, vector, birth, path string
	page, tokens              int
	start, end                int64
}

// segmentsOf reads the segments of a version in their order.
func (c *checker) segmentsOf(ctx context.Context, version string) ([]segmentRow, error) {
	var out []segmentRow
	err := c.each(ctx, c.q.Get("SegmentsOf"), []any{version}, func(scan func(...any) error) error {
		var s segmentRow
		err := scan(&s.index, &s.hash, &s.vector, &s.birth, &s.page, &s.path, &s.start, &s.end, &s.tokens)
		out = append(out, s)
		return err
	})
	return out, err
}
