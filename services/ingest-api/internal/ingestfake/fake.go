// Package ingestfake is ingest.Service in memory, for the gateway's tests: real scopes, keys, states and watches, no work.
package ingestfake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Service is the fake. Fail makes a method, by its name, return an error.
type Service struct {
	mu        sync.Mutex
	n         int
	now       time.Time
	tasks     map[string]taskstate.Task
	log       map[string][]taskstate.Transition
	docs      map[string]ingest.Document
	bases     map[string]ingest.Base
	keys      map[string]string // user, key → task id
	receiving map[string]bool
	files     map[string][]byte // received, neither accepted nor discarded
	fail      map[string]error
	watchers  map[string][]*watcher
	nextLog   int64
	watching  chan string // the task of each Watch that began
	receives  chan string // the name of each file whose Receive began
	lastQuery taskstate.Query
	lastCall  ingest.Caller
	received  int64
}

type watcher struct {
	ctx context.Context
	out chan ingest.TaskEvent
}

// New makes an empty service.
func New() *Service {
	return &Service{
		now:   time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC),
		tasks: map[string]taskstate.Task{}, log: map[string][]taskstate.Transition{}, docs: map[string]ingest.Document{},
		bases: map[string]ingest.Base{}, keys: map[string]string{}, receiving: map[string]bool{}, files: map[string][]byte{},
		fail: map[string]error{}, watchers: map[string][]*watcher{}, watching: make(chan string, 10_000), receives: make(chan string, 10_000),
	}
}

var _ ingest.Service = (*Service)(nil)

// Fail makes the method of that name return err; nil takes that back.
func (s *Service) Fail(method string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[method] = err
}

// Held is how many received files are neither accepted nor discarded.
func (s *Service) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files)
}

// Tally is how many tasks and documents there are.
func (s *Service) Tally() (tasks, docs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks), len(s.docs)
}

// Watching tells the task of each Watch that began.
func (s *Service) Watching() <-chan string { return s.watching }

// Receiving tells the name of each file whose Receive began.
func (s *Service) Receiving() <-chan string { return s.receives }

// LastQuery is what the last Tasks was asked.
func (s *Service) LastQuery() taskstate.Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastQuery
}

// LastCaller is who called last.
func (s *Service) LastCaller() ingest.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastCall
}

// Received is how many bytes of uploads were read.
func (s *Service) Received() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received
}

// begin locks, notes the caller and returns the error that was asked for.
func (s *Service) begin(method string, c ingest.Caller) (func(), error) {
	s.mu.Lock()
	s.lastCall = c
	return s.mu.Unlock, s.fail[method]
}

// id makes the next id, in the form of a UUIDv7.
func (s *Service) id() string {
	s.n++
	return fmt.Sprintf("0190a6e0-0000-7000-8000-%012d", s.n)
}

// tick is a time later than all before.
func (s *Service) tick() time.Time {
	s.now = s.now.Add(time.Second + 1500*time.Microsecond)
	return s.now
}

// Receive reads r to its end. A file that begins with "%EXE" is of no known type; an empty one has no content.
func (s *Service) Receive(_ context.Context, r io.Reader, name string) (ingest.ReceivedFile, error) {
	select {
	case s.receives <- name:
	default: // nobody listens
	}
	s.mu.Lock()
	err := s.fail["Receive"]
	s.mu.Unlock()
	if err != nil {
		return ingest.ReceivedFile{}, err
	}
	body, err := io.ReadAll(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received += int64(len(body))
	if err != nil {
		return ingest.ReceivedFile{}, fmt.Errorf("receive %s: %w", name, err)
	}
	if len(body) == 0 {
		return ingest.ReceivedFile{}, ingest.Permanent(ingest.CodeEmpty, "Send a file with text in it.", "%s is empty", name)
	}
	if strings.HasPrefix(string(body), "%EXE") {
		return ingest.ReceivedFile{}, ingest.Permanent(ingest.CodeUnsupportedType, "", "%s is a program", name)
	}
	sum := sha256.Sum256(body)
	f := ingest.ReceivedFile{ID: s.id(), Name: name, Bytes: int64(len(body)), SHA256: hex.EncodeToString(sum[:]), MediaType: "text/plain"}
	s.files[f.ID] = body
	return f, nil
}

// Discard forgets a received file.
func (s *Service) Discard(f ingest.ReceivedFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, held := s.files[f.ID]; !held {
		panic("discard of a file that is not held: " + f.ID)
	}
	delete(s.files, f.ID)
}

// Admit implements ingest.Service.
func (s *Service) Admit(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail["Admit"]
}

// BeginKey claims a key.
func (s *Service) BeginKey(_ context.Context, c ingest.Caller, key string) (func(), error) {
	end, err := s.begin("BeginKey", c)
	defer end()
	if err != nil {
		return nil, err
	}
	name := c.Scope.UserID + "\x00" + key
	if s.receiving[name] {
		return nil, ingest.ErrKeyInUse
	}
	s.receiving[name] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.receiving, name)
	}, nil
}

// Accept makes document and task.
func (s *Service) Accept(_ context.Context, c ingest.Caller, u ingest.Upload) (ingest.Accepted, error) {
	end, err := s.begin("Accept", c)
	defer end()
	if err != nil {
		return ingest.Accepted{}, err
	}
	key := c.Scope.UserID + "\x00" + u.IdempotencyKey
	if id := s.keys[key]; id != "" && u.IdempotencyKey != "" {
		t := s.tasks[id]
		if t.RequestHash != u.File.SHA256 {
			return ingest.Accepted{}, ingest.ErrKeyReused
		}
		delete(s.files, u.File.ID)
		return ingest.Accepted{Task: t, Document: s.docs[t.DocumentID], Replayed: true}, nil
	}
	base, err := s.acceptBase(c, u.Base)
	if err != nil {
		return ingest.Accepted{}, err
	}
	doc, same, err := s.acceptDocument(c, u, base)
	if err != nil {
		return ingest.Accepted{}, err
	}
	delete(s.files, u.File.ID)
	if same && !u.Force {
		return ingest.Accepted{Task: s.tasks[doc.LatestTaskID], Document: doc, Duplicate: true}, nil
	}
	t := s.newTask(c, doc, u)
	doc.LatestTaskID, doc.Status = t.ID, ingest.DocumentQueued
	s.docs[doc.ID] = doc
	if u.IdempotencyKey != "" {
		s.keys[key] = t.ID
	}
	return ingest.Accepted{Task: t, Document: doc}, nil
}

// AcceptAll accepts one upload after the other.
func (s *Service) AcceptAll(ctx context.Context, c ingest.Caller, uploads []ingest.Upload) ([]ingest.Accepted, []error) {
	out, errs := make([]ingest.Accepted, len(uploads)), make([]error, len(uploads))
	for i, u := range uploads {
		out[i], errs[i] = s.Accept(ctx, c, u)
	}
	return out, errs
}

// acceptBase finds the base of an upload; "default" is made.
func (s *Service) acceptBase(c ingest.Caller, idOrName string) (ingest.Base, error) {
	if idOrName == "" {
		idOrName = "default"
	}
	b, err := s.base(c, idOrName)
	if err != nil && idOrName == "default" {
		return s.newBase(c, "default"), nil
	}
	return b, err
}

// acceptDocument finds or makes the document; same says that its bytes are those of the upload.
func (s *Service) acceptDocument(c ingest.Caller, u ingest.Upload, base ingest.Base) (d ingest.Document, same bool, err error) {
	if u.DocumentID != "" {
		if d, err = s.document(c, u.DocumentID); err != nil {
			return d, false, err
		}
		if err = guarded(c, d); err != nil {
			return d, false, err
		}
		same = d.SHA256 == u.File.SHA256
		d.SHA256, d.Bytes, d.FileName, d.UpdatedAt = u.File.SHA256, u.File.Bytes, u.File.Name, s.tick()
		return d, same, nil
	}
	for _, d := range s.docs {
		if d.UserID == c.Scope.UserID && d.BaseID == base.ID && d.SHA256 == u.File.SHA256 {
			return d, true, nil
		}
	}
	at := s.tick()
	title := u.Title
	if title == "" {
		title = u.File.Name
	}
	return ingest.Document{
		ID: s.id(), UserID: c.Scope.UserID, BaseID: base.ID, BaseName: base.Name, Title: title, FileName: u.File.Name,
		MediaType: u.File.MediaType, Bytes: u.File.Bytes, SHA256: u.File.SHA256, CreatedAt: at, UpdatedAt: at,
	}, false, nil
}

// newTask is a task as it is accepted.
func (s *Service) newTask(c ingest.Caller, d ingest.Document, u ingest.Upload) taskstate.Task {
	at := s.tick()
	t := taskstate.Task{
		ID: s.id(), UserID: c.Scope.UserID, DocumentID: d.ID, KnowledgeBase: d.BaseID, Type: "document", Channel: c.Channel,
		Status: taskstate.StatusQueued, Progress: taskstate.Progress{Stage: taskstate.StageNone}, MaxAttempts: 10,
		RequestHash: u.File.SHA256, IdempotencyKey: u.IdempotencyKey, TraceParent: c.TraceParent, DLQ: taskstate.DLQNone,
		CreatedAt: at, UpdatedAt: at,
	}
	s.tasks[t.ID] = t
	s.note(t.ID, taskstate.StatusNone, taskstate.StatusQueued, taskstate.ReasonAccepted, c.Scope.Actor(), "")
	return t
}

// note writes a transition.
func (s *Service) note(id string, from, to taskstate.Status, r taskstate.Reason, a taskstate.Actor, message string) {
	s.nextLog++
	t := s.tasks[id]
	s.log[id] = append(s.log[id], taskstate.Transition{
		ID: s.nextLog, TaskID: id, From: from, To: to, Reason: r, Actor: a.String(), Message: message,
		AttemptCount: t.AttemptCount, NextRetryAt: t.NextRetryAt, ErrorCode: t.ErrorCode, CreatedAt: t.UpdatedAt,
	})
}
