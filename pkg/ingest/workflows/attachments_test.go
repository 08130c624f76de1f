package workflows_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// message is one that the world's reader takes apart: lines "@name text" are its attachments.
func message(lines ...string) string {
	return "From: a@example.org\nTo: b@example.org\nSubject: s\nMessage-ID: <1@x>\n\nThe letter is here.\n" + strings.Join(lines, "\n") + "\n"
}

// sent accepts a message, and returns the task of its attachments.
func (b *bench) sent(u ingest.Upload, lines ...string) (ingest.Accepted, taskstate.Task) {
	b.t.Helper()
	before := b.attachmentTasks()
	u.File = b.Receive("letter.eml", message(lines...))
	got := b.Accept(u)
	return got, b.newTask(before)
}

func (b *bench) attachmentTasks() (ids []string) {
	b.t.Helper()
	page, err := b.Store.List(b.t.Context(), taskstate.System(), taskstate.Query{Limit: 200})
	require.NoError(b.t, err)
	for _, t := range page.Tasks {
		if t.WorkflowID == ingest.AttachmentsWorkflow {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// newTask is the one task of attachments that was not there before.
func (b *bench) newTask(before []string) taskstate.Task {
	b.t.Helper()
	fresh := slices.DeleteFunc(b.attachmentTasks(), func(id string) bool { return slices.Contains(before, id) })
	require.Len(b.t, fresh, 1)
	t := b.Task(fresh[0])
	require.Equal(b.t, taskstate.StatusQueued, t.Status)
	require.Equal(b.t, workflow.Type, t.Type)
	require.Empty(b.t, t.DocumentID)
	require.Equal(b.t, ingest.AttachmentsChannel, t.Channel, "no request has asked for it")
	t.Fence = 1
	return t
}

// attach is an attempt of a task of attachments.
func (b *bench) attach(t taskstate.Task, report func(taskstate.Progress)) (a workflows.Attached, err error) {
	b.t.Helper()
	var q workflow.Request
	require.NoError(b.t, json.Unmarshal(t.Payload, &q))
	out, err := b.all[ingest.AttachmentsWorkflow].Run(b.t.Context(), workflow.Run{Task: t, Key: t.ID, Payload: q.Payload, Report: report})
	if err == nil {
		require.NoError(b.t, json.Unmarshal(out, &a))
	}
	return a, err
}

func (b *bench) attached(t taskstate.Task) workflows.Attached {
	b.t.Helper()
	a, err := b.attach(t, func(taskstate.Progress) {})
	require.NoError(b.t, err)
	return a
}

// children are the live attachments of a message, by name.
func (b *bench) children(message string) map[string]string {
	b.t.Helper()
	all, err := b.App.Attachments(b.t.Context(), message)
	require.NoError(b.t, err)
	out := map[string]string{}
	for _, a := range all {
		require.Empty(b.t, out[a.FileName])
		out[a.FileName] = a.ID
	}
	return out
}

// An attachment is a document of its own that says which message it came from; one that cannot be read says why, and the others stay.
func TestAttachmentsBecomeDocuments(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		got, task := b.sent(ingest.Upload{Metadata: `{"case":"<7>"}`}, "@one.txt One is here.", "@../../etc/two.txt Two is here.", "@bad.txt !corrupt", "@x.exe MZ\x01\x02", "@all.zip PK\x03\x04")
		failure := func() taskstate.Failure {
			_, err := b.attach(task, func(taskstate.Progress) {})
			require.Error(t, err)
			return workflow.Handler{}.Classify(err)
		}
		f := failure()
		require.True(t, f.Throttled, "the message is not visible yet")
		require.Equal(t, taskstate.StatusSucceeded, w.Process(got.Task.ID).Status)
		a := b.attached(task)
		require.Equal(t, []int{5, 5, 0, 0, 0}, []int{a.Attachments, a.Accepted, a.Unchanged, a.Refused, a.Removed})
		require.Equal(t, []string{"one.txt", "../../etc/two.txt", "bad.txt", "x.exe", "all.zip"}, names(a.Entries))
		for i, e := range a.Entries {
			status := taskstate.StatusSucceeded
			if i == 2 {
				status = taskstate.StatusDead
			}
			if i < 3 {
				require.Equal(t, status, w.Process(e.TaskID).Status)
			}
			d := w.Document(e.DocumentID)
			require.Equal(t, ingest.Parent{ID: got.Document.ID, No: 1}, d.Parent)
			require.Equal(t, got.Document.BaseID, d.BaseID)
			require.JSONEq(t, `{"case":"<7>"}`, string(d.Metadata))
		}
		require.Equal(t, "two.txt", w.Document(a.Entries[1].DocumentID).FileName)
		require.Equal(t, "text/plain", w.Document(a.Entries[0].DocumentID).MediaType)
		require.Equal(t, ingest.DocumentFailed, w.Document(a.Entries[2].DocumentID).Status)
		require.Equal(t, "application/octet-stream", w.Document(a.Entries[3].DocumentID).MediaType, "its own task says that it cannot be read")
		require.Equal(t, "application/octet-stream", w.Document(a.Entries[4].DocumentID).MediaType)
		require.Equal(t, ingest.DocumentReady, w.Document(got.Document.ID).Status)

		own := w.Accept(ingest.Upload{File: w.Receive("mine.txt", "One is here.")})
		require.False(t, own.Duplicate, "the same bytes by themselves are another document")
		require.Empty(t, own.Document.Parent)
		other, task2 := b.sent(ingest.Upload{}, "@one.txt One is here.", "@one.txt One is here.", "@empty.txt ")
		w.Process(other.Task.ID)
		a = b.attached(task2)
		require.Equal(t, []int{3, 2, 1}, []int{a.Attachments, a.Accepted, a.Refused}, "each of another message is another one, too")
		require.Equal(t, "EMPTY_FILE", a.Entries[0].Error.Code)
		again := b.attached(task2)
		require.Equal(t, []int{3, 0, 2, 1}, []int{again.Attachments, again.Accepted, again.Unchanged, again.Refused})
		w.CheckInvariants()
		w.CheckFiles()
	})
}

// A new version of a message has its own attachments once it is visible, and not before; what is the same stays the same document.
func TestANewVersionReplacesTheAttachments(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		first, task1 := b.sent(ingest.Upload{}, "@same.txt It stays.", "@other.txt It changes.", "@gone.txt It goes.")
		message := first.Document.ID
		w.Process(first.Task.ID)
		b.attached(task1)
		before := b.children(message)
		require.Len(t, before, 3)

		bad, task2 := b.sent(ingest.Upload{DocumentID: message}, "!corrupt", "@new.txt It never comes.")
		require.Equal(t, taskstate.StatusDead, w.Process(bad.Task.ID).Status)
		_, err := b.attach(task2, func(taskstate.Progress) {})
		require.Equal(t, workflows.CodeNoMessage, workflow.Handler{}.Classify(err).Code)
		require.Equal(t, before, b.children(message), "the visible version keeps its attachments")

		second, task3 := b.sent(ingest.Upload{DocumentID: message}, "@same.txt It stays.", "@other.txt It has changed.", "@new.txt It comes.")
		w.Process(second.Task.ID)
		a := b.attached(task3)
		require.Equal(t, []int{3, 2, 1, 1 + 1}, []int{a.Attachments, a.Accepted, a.Unchanged, a.Removed})
		after := b.children(message)
		require.Len(t, after, 3)
		require.Equal(t, before["same.txt"], after["same.txt"])
		require.NotEqual(t, before["other.txt"], after["other.txt"])
		require.NotEmpty(t, after["new.txt"])
		receipt, err := w.App.Deletion(t.Context(), w.Caller, before["gone.txt"])
		require.NoError(t, err)
		require.Equal(t, "user:"+w.Caller.Scope.UserID, receipt.By)

		renewed := w.Accept(ingest.Upload{File: w.Receive("same.txt", "It was renewed by itself."), DocumentID: after["same.txt"]})
		require.Equal(t, message, w.Document(after["same.txt"]).Parent.ID, "it stays an attachment")
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_document WHERE id = ? AND same_sha256 IS NULL", after["same.txt"]))
		require.Contains(t, string(w.Task(renewed.Task.ID).Payload), message, "a copy of its task knows that")
		require.False(t, w.Accept(ingest.Upload{File: w.Receive("mine.txt", "It was renewed by itself.")}).Duplicate)
		w.Process(renewed.Task.ID)

		late := b.attached(task1) // as a process that was paused goes on
		require.True(t, late.Skipped)
		require.Equal(t, after, b.children(message))
		require.ErrorIs(t, errOf(w.App.Accept(t.Context(), w.Caller, ingest.Upload{
			File: w.Receive("late.txt", "It is late."), Base: first.Document.BaseID, Parent: ingest.Parent{ID: message, No: 1},
		})), ingest.ErrChanged, "nothing of an older version comes in behind a later one")

		back, err := w.App.Rollback(t.Context(), w.Caller, message, 1, "")
		require.NoError(t, err)
		w.Process(back.Task.ID)
		require.Equal(t, 3, b.attached(b.newTask([]string{task1.ID, task2.ID, task3.ID})).Accepted, "what was renewed by itself is replaced, too")
		require.Equal(t, []string{"gone.txt", "other.txt", "same.txt"}, keys(b.children(message)))
		w.CheckInvariants()
	})
}

func errOf[T any](_ T, err error) error { return err }

func keys(m map[string]string) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Wherever an attempt dies, each attachment becomes one document, and each that is no longer there goes.
func TestAttachmentsAreTakenInOnce(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		lines := []string{"@same.txt Twice.", "@same.txt Twice.", "@three.txt Three is here.", "@four.txt Four is here."}
		for dies := range len(lines) {
			got, task := b.sent(ingest.Upload{Title: fmt.Sprint("dies at ", dies)}, append(lines, fmt.Sprint("dies at ", dies))...)
			w.Process(got.Task.ID)
			reports := 0
			require.PanicsWithValue(t, "dies", func() {
				_, _ = b.attach(task, func(taskstate.Progress) {
					if reports++; reports > dies {
						panic("dies")
					}
				})
			})
			require.Len(t, childIDs(t, w, got.Document.ID), dies)
			for _, fence := range []int64{2, 3} { // the second one after an end that was lost
				task.Fence = fence
				require.Equal(t, len(lines), b.attached(task).Attachments)
				require.Len(t, childIDs(t, w, got.Document.ID), len(lines))
			}
		}
		w.CheckFiles()
		w.CheckInvariants()
	})
}

func childIDs(t *testing.T, w *ingesttest.World, message string) (ids []string) {
	t.Helper()
	all, err := w.App.Attachments(t.Context(), message)
	require.NoError(t, err)
	for _, a := range all {
		ids = append(ids, a.ID)
	}
	return ids
}

// A message goes with all that it carries, at once; a deletion that was interrupted is completed by the sweeper.
func TestADeletedMessageTakesItsAttachmentsAlong(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		for _, interrupted := range []bool{false, true} {
			got, task := b.sent(ingest.Upload{}, "@inner.txt It is inside.", fmt.Sprint("interrupted: ", interrupted))
			w.Process(got.Task.ID)
			child := b.attached(task).Entries[0]
			w.Process(child.TaskID)
			deep := w.Accept(ingest.Upload{
				File: w.Receive("deep.txt", "It is deeper."), Base: got.Document.BaseID, Parent: ingest.Parent{ID: child.DocumentID, No: 1},
			})
			if interrupted {
				w.Exec("UPDATE knowledge_document SET parent_id = NULL WHERE id IN (?, ?)", child.DocumentID, deep.Document.ID) // it does not see them
				require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, got.Document.ID))
				w.Exec("UPDATE knowledge_document SET parent_id = ? WHERE id = ?", got.Document.ID, child.DocumentID)
				w.Exec("UPDATE knowledge_document SET parent_id = ? WHERE id = ?", child.DocumentID, deep.Document.ID)
				w.SweepAll()
			} else {
				require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, got.Document.ID))
			}
			require.Equal(t, 0, w.Number("SELECT COUNT(*) FROM knowledge_document WHERE deleted_at IS NULL"))
			require.Equal(t, taskstate.StatusCancelled, w.Task(deep.Task.ID).Status)
			for _, id := range []string{got.Document.ID, child.DocumentID, deep.Document.ID} {
				_, err := w.App.Deletion(t.Context(), w.Caller, id)
				require.NoError(t, err, "each has its receipt")
			}
			require.ErrorIs(t, errOf(w.App.Accept(t.Context(), w.Caller, ingest.Upload{
				File: w.Receive("late.txt", "It is late."), Base: got.Document.BaseID, Parent: ingest.Parent{ID: got.Document.ID, No: 1},
			})), ingest.ErrDocumentNotFound, "no attachment slips in behind the deletion")
			require.True(t, b.attached(task).Skipped)
		}
		w.Advance(48 * time.Hour)
		w.SweepAll()
		w.CheckInvariants()
	})
}

// Messages in messages are taken in to a depth, beyond which their attachments are named.
func TestMessagesInMessagesEnd(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		got, task := b.sent(ingest.Upload{}, "@in.txt x")
		for range 4 {
			f := w.Receive("letter.eml", message("@in.txt x", got.Document.ID))
			w.Process(got.Task.ID)
			a := b.attached(task)
			require.Equal(t, 1, a.Accepted)
			before := b.attachmentTasks()
			got = w.Accept(ingest.Upload{File: f, Base: got.Document.BaseID, Parent: ingest.Parent{ID: got.Document.ID, No: 1}})
			task = b.newTask(before)
		}
		w.Process(got.Task.ID)
		a := b.attached(task)
		require.Equal(t, []string{"in.txt LIMIT_EXCEEDED"}, names(a.Entries))
		require.Contains(t, a.Entries[0].Error.Message, "it lies in more than 4 messages")
	})
}

// Who is not the message's owner has nothing to do with its attachments.
func TestAttachmentsAreTheOwners(t *testing.T) {
	t.Parallel()
	b := newPreviewBench(t, ingesttest.NewWorld(t, ingesttest.Options{}))
	got, task := b.sent(ingest.Upload{}, "@in.txt x")
	b.Process(got.Task.ID)
	task.UserID = "mallory"
	require.True(t, b.attached(task).Skipped)
	require.Empty(t, b.children(got.Document.ID))
	require.Equal(t, workflow.Type, ingest.AttachmentsType)
}
