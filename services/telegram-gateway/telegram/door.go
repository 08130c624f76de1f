package telegram

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

const (
	channel       = "telegram"
	downloadTries = 5
	searchHits    = 5
	lastTasks     = 5
	titleLength   = 80  // characters of a text's first line
	mostText      = 300 // characters of a hit
)

// door turns updates into tasks and commands. It is safe for concurrent use.
type door struct {
	app     ingest.Service
	api     *client
	users   map[int64]string // by chat
	replies *replies
	figs    *metrics
	log     *slog.Logger
	pause   time.Duration // firstPause but in tests
}

// handle does what an update asks for. An error: it is to be handled again. What is refused, the chat is told.
func (d *door) handle(ctx context.Context, u models.Update) error {
	if u.Message == nil {
		return nil
	}
	result, err := d.serve(ctx, u.Message)
	if err != nil {
		result = updateFailed
	}
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) { // else our own end, or Telegram's, has cut it off
		d.figs.handled(u.Message, result)
	}
	return err
}

// serve is handle with the result of a message that need not be handled again.
func (d *door) serve(ctx context.Context, m *models.Message) (result string, err error) {
	user, served := d.users[m.Chat.ID]
	if !served {
		d.log.InfoContext(ctx, "telegram: a chat that is not served", slog.Int64("chat", m.Chat.ID))
		text := fmt.Sprintf("This chat is not served. Its id is %d: whoever runs Millweir adds it to TELEGRAM_CHATS, as %d=user.", m.Chat.ID, m.Chat.ID)
		return updateNotServed, d.tell(ctx, m, text)
	}
	c := ingest.Caller{Scope: taskstate.Scope{UserID: user, Role: taskstate.RoleUser}, Channel: channel, RequestID: ingest.NewID()}
	err = d.do(ctx, c, m)
	var no *refusal
	if errors.As(err, &no) {
		return updateRefused, d.tell(ctx, m, no.text)
	}
	return updateDone, err
}

// do is handle for a user.
func (d *door) do(ctx context.Context, c ingest.Caller, m *models.Message) error {
	if word, rest, _ := strings.Cut(strings.TrimSpace(m.Text), " "); strings.HasPrefix(word, "/") {
		name, _, _ := strings.Cut(word, "@") // in groups: /status@name_of_the_bot
		return d.command(ctx, c, m, name, strings.TrimSpace(rest))
	}
	switch {
	case m.Document != nil:
		name := m.Document.FileName
		if name == "" {
			name = "telegram-" + place(m)
		}
		if m.Document.FileSize > maxFile {
			return &refusal{fmt.Sprintf("%s has %d bytes; bots may download at most %d. Upload it over HTTP or with `millweir submit`.", name, m.Document.FileSize, maxFile)}
		}
		return d.download(ctx, c, m, name)
	case strings.TrimSpace(m.Text) != "":
		return d.ask(ctx, c, m)
	default:
		return &refusal{"I take texts, and files that are sent as documents. /help says more."}
	}
}

// place names a message in its chat. Dates are whole seconds, so the number stands beside it.
func place(m *models.Message) string { return fmt.Sprintf("%d-%d", m.Date, m.ID) }

// cut is at most n characters of a text.
func cut(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}

// download takes in a file that was sent.
func (d *door) download(ctx context.Context, c ingest.Caller, m *models.Message, name string) error {
	waits := pause.Backoff{First: d.pause, Most: mostPause}
	for try := 1; ; try++ {
		err := d.fetch(ctx, c, m, name)
		var from *brokenDownload
		if !errors.As(err, &from) || ctx.Err() != nil {
			return err
		}
		if try == downloadTries {
			return &refusal{fmt.Sprintf("Telegram did not give me %s, in %d tries (%s). Send it again.", name, try, from.err)}
		}
		d.log.WarnContext(ctx, "telegram: a file did not come", slog.Int("try", try), logged(from.err))
		pause.For(ctx, max(waits.Next(), d.api.quiet()))
	}
}

// fetch is one try of download.
func (d *door) fetch(ctx context.Context, c ingest.Caller, m *models.Message, name string) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	body, err := d.api.file(ctx, m.Document.FileID)
	if again(err) {
		return &brokenDownload{err}
	} else if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	return d.accept(ctx, c, m, &download{Reader: body, api: d.api}, name, m.Caption)
}

// brokenDownload says that Telegram, not we, could not give a file.
type brokenDownload struct{ err error }

func (b *brokenDownload) Error() string { return b.err.Error() }

// download marks errors of the reader as Telegram's, and notes its end.
type download struct {
	io.Reader
	api   *client
	noted bool
}

func (r *download) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == nil {
		return n, nil
	}
	cause := err
	if errors.Is(err, io.EOF) {
		cause = nil
	} else {
		err = &brokenDownload{hidden(err)}
	}
	if !r.noted {
		r.noted = true
		_ = r.api.note(downloadFile, cause) // err says it too
	}
	return n, err
}

// keyOf is the idempotency key of what is made of a message.
func keyOf(what string, m *models.Message) string {
	return fmt.Sprintf("%s:%s:%d:%s", channel, what, m.Chat.ID, place(m))
}

// ask asks for the workflow that makes a document of a text, and writes the row of its reply.
func (d *door) ask(ctx context.Context, c ingest.Caller, m *models.Message) error {
	name := "telegram-" + place(m) + ".txt"
	file, err := json.Marshal(map[string]string{"fileName": name})
	if err != nil {
		return err
	}
	about, err := json.Marshal(map[string]any{"chat_id": m.Chat.ID, "timestamp": place(m)})
	if err != nil {
		return err
	}
	payload, err := json.Marshal(workflow.Request{UserText: m.Text, Payload: file, Metadata: about})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(payload)
	got, errs := d.app.Submit(ctx, c, tasks.Request{
		Type: workflow.Type, WorkflowID: workflows.IngestText, ChatID: strconv.FormatInt(m.Chat.ID, 10), Payload: payload,
		IdempotencyKey: keyOf(workflows.IngestText, m), Hash: hex.EncodeToString(sum[:]),
	})
	if errs[0] != nil {
		return refused(name, errs[0])
	}
	return d.replies.add(ctx, reply{chat: m.Chat.ID, message: m.ID, task: got[0].Task.ID, name: name})
}

// accept makes a document of a message's file, and the row of its reply.
func (d *door) accept(ctx context.Context, c ingest.Caller, m *models.Message, r io.Reader, name, title string) error {
	f, err := d.app.Receive(ctx, r, name)
	if err != nil {
		return refused(name, err)
	}
	got, errs := d.app.AcceptAll(ctx, c, []ingest.Upload{{
		File: f, Title: cut(title, titleLength), ChatID: strconv.FormatInt(m.Chat.ID, 10), IdempotencyKey: keyOf(workflows.IngestDocument, m),
	}})
	if errs[0] != nil {
		d.app.Discard(f)
		return refused(name, errs[0])
	}
	return d.replies.add(ctx, reply{chat: m.Chat.ID, message: m.ID, task: got[0].Task.ID, name: f.Name})
}

// refused is the refusal for what no later try can cure; else err, as it is.
func refused(name string, err error) error {
	var failure *ingest.Failure
	var text *ingest.TextError
	switch {
	case errors.As(err, &failure) && failure.Permanent:
		return &refusal{strings.TrimSpace(fmt.Sprintf("%s was not taken: %s. %s", name, failure, failure.Remedy))}
	case errors.As(err, &text):
		return &refusal{fmt.Sprintf("%s was not taken: %s", name, text)}
	case errors.Is(err, ingest.ErrTooLarge):
		return &refusal{fmt.Sprintf("%s was not taken: more than %d bytes. Upload it over HTTP or with `millweir submit`.", name, maxFile)}
	case errors.Is(err, ingest.ErrBacklogFull):
		return &refusal{name + " was not taken: too many tasks wait. Send it again later."}
	case errors.Is(err, ingest.ErrKeyReused):
		return &refusal{name + " was not taken: this message was another text before."}
	}
	return err
}

const help = `I take texts, and files that are sent as documents, into the knowledge base, and tell here what becomes of them.
/status – your last tasks; /status ID – one of them
/search WORDS – look into what was taken in
/cancel ID – end a task that waits or runs`

// command does what a message that begins with a slash says.
func (d *door) command(ctx context.Context, c ingest.Caller, m *models.Message, name, rest string) error {
	switch name {
	case "/start", "/help":
		return d.tell(ctx, m, help)
	case "/status":
		return d.status(ctx, c, m, rest)
	case "/search":
		return d.search(ctx, c, m, rest)
	case "/cancel":
		if rest == "" {
			return &refusal{"/cancel needs the id of a task."}
		}
		t, err := d.app.Cancel(ctx, c, strings.ToLower(rest))
		var state *taskstate.RefusedError
		switch {
		case errors.Is(err, taskstate.ErrNotFound):
			return unknownTask(rest)
		case errors.As(err, &state):
			return &refusal{fmt.Sprintf("Task %s cannot be cancelled: %s.", rest, state)}
		case err != nil:
			return err
		}
		return d.tell(ctx, m, line(t))
	default:
		return &refusal{fmt.Sprintf("I do not know %s.\n%s", cut(name, titleLength), help)}
	}
}

func unknownTask(id string) error {
	return &refusal{fmt.Sprintf("You have no task %s.", cut(id, titleLength))}
}

// status tells of one task, or of the last ones.
func (d *door) status(ctx context.Context, c ingest.Caller, m *models.Message, id string) error {
	if id != "" {
		t, err := d.app.Task(ctx, c, strings.ToLower(id))
		if errors.Is(err, taskstate.ErrNotFound) {
			return unknownTask(id)
		} else if err != nil {
			return err
		}
		return d.tell(ctx, m, line(t))
	}
	page, err := d.app.Tasks(ctx, c, taskstate.Query{Limit: lastTasks, Sort: taskstate.SortCreatedDesc})
	if err != nil {
		return err
	}
	lines := make([]string, len(page.Tasks))
	for i, t := range page.Tasks {
		lines[i] = line(t)
	}
	if len(lines) == 0 {
		lines = []string{"You have no tasks."}
	}
	return d.tell(ctx, m, strings.Join(lines, "\n\n"))
}

// line is a task in words.
func line(t taskstate.Task) string { return "Task " + t.ID + "\n" + words(t) }

// search tells what it finds.
func (d *door) search(ctx context.Context, c ingest.Caller, m *models.Message, query string) error {
	if query == "" {
		return &refusal{"/search needs words to look for."}
	}
	found, err := d.app.Search(ctx, c, ingest.SearchRequest{Query: query, TopK: searchHits})
	switch {
	case errors.Is(err, ingest.ErrBaseNotFound): // nothing was ever taken in
	case errors.As(err, new(*ingest.TextError)):
		return &refusal{err.Error()}
	case err != nil:
		return err
	}
	var out []string
	for i, h := range found.Hits {
		out = append(out, fmt.Sprintf("%d. %s\n%s", i+1, cut(h.Title, titleLength), cut(strings.Join(strings.Fields(h.Sentence.Text), " "), mostText)))
	}
	if len(out) == 0 {
		out = []string{"Nothing found."}
	}
	return d.tell(ctx, m, strings.Join(out, "\n\n"))
}

// tell answers a message at once. A chat that does not take it (the bot was blocked, the chat is gone) is not tried again.
func (d *door) tell(ctx context.Context, m *models.Message, text string) error {
	_, err := d.api.say(ctx, m.Chat.ID, m.ID, text)
	if gone(err) {
		d.log.InfoContext(ctx, "telegram: a chat does not take messages", slog.Int64("chat", m.Chat.ID), logged(err))
		return nil
	}
	return err
}

// gone reports whether Telegram will never take this message for this chat. A 404 is no word on the chat (that is a 400): the URL is wrong.
func gone(err error) bool {
	var moved *bot.MigrateError
	return errors.Is(err, bot.ErrorForbidden) || errors.Is(err, bot.ErrorBadRequest) || errors.As(err, &moved)
}

// words say where a task is.
func words(t taskstate.Task) string {
	reason := t.ErrorMessage
	if reason == "" {
		reason = t.LastError
	}
	reason = cut(reason, mostText)
	switch t.Status {
	case taskstate.StatusQueued:
		return "Waits."
	case taskstate.StatusRunning:
		return fmt.Sprintf("Runs: %s, %d %%.", t.Progress.Stage, t.Progress.Percent)
	case taskstate.StatusRetrying:
		return fmt.Sprintf("Failed, and is tried again at %s UTC: %s", t.NextRetryAt.UTC().Format(time.TimeOnly), reason)
	case taskstate.StatusSucceeded:
		if t.Type == workflow.Type {
			return "Taken in; the task of its document goes on."
		}
		return "Done: it can be searched."
	case taskstate.StatusDead:
		return "Failed: " + reason
	case taskstate.StatusCancelled:
		return "Cancelled."
	case taskstate.StatusSuspended:
		return "Waits for a person: " + reason
	case taskstate.StatusNone:
	}
	return string(t.Status)
}
