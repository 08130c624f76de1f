package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

const (
	ApplyPath   = "/api/workflows/apply"
	applyWait   = 20 * time.Second // of a command that says nothing else
	longestWait = 2 * time.Minute
	maxStdin    = 1 << 20 // bytes: the gateway refuses more
)

// apply asks for a workflow and waits for its end. Exit 1 when it failed.
func apply(a *App) *cobra.Command {
	var payload MetadataFlag
	var chat, key string
	var retries int
	var wait time.Duration
	c := Verb("apply WORKFLOW [TEXT…] [--payload KEY=TEXT] [--chat ID] [--key KEY] [--wait 20s]", "run a workflow, such as ingest.text, and show its result",
		NeedsSome("workflow"), func(ctx context.Context, args []string) error {
			if wait < 0 || wait > longestWait {
				return Usage(fmt.Sprintf("--wait %s: allowed are 0s to %s", wait, longestWait))
			}
			text, err := a.words(args[1:])
			if err != nil {
				return err
			}
			waits, seconds := wait > 0, max(1, int(wait.Seconds()))
			ask := wire.WorkflowApply{
				WorkflowID: args[0], ChatID: chat, UserText: text, IdempotencyKey: key, WaitForResult: &waits, WaitTimeoutSeconds: &seconds,
			}
			if payload != nil {
				ask.Payload = json.RawMessage(payload.String())
			}
			if a.Said("retries") {
				ask.RetryMax = &retries
			}
			var got wire.WorkflowReply
			if err := a.Gateway().Post(ctx, ApplyPath, ask, &got); err != nil {
				return err
			}
			run := got.Data
			if err := One(a, run, func(w io.Writer) { runLines(fields{w}, run) }); err != nil {
				return err
			}
			if run.Status.Terminal() && run.Status != taskstate.StatusSucceeded {
				return Failed(fmt.Errorf("task %s is %s", run.TaskID, run.Status))
			}
			return nil
		})
	f := c.Flags()
	f.Var(&payload, "payload", "what the workflow works on, KEY=TEXT or KEY:=JSON; may be repeated")
	f.StringVar(&chat, "chat", "cli", "whose conversation it is about")
	f.StringVar(&key, "key", "", "idempotency key: the same request with it is the same task")
	f.IntVar(&retries, "retries", 0, "attempts after which it is DEAD, 1 to 10; 3 if not given")
	f.DurationVar(&wait, "wait", applyWait, "how long to wait for the result, at most 2m; 0s: not at all")
	return c
}

// words joins arguments to a text; a single - is standard input.
func (a *App) words(args []string) (string, error) {
	if len(args) != 1 || args[0] != "-" {
		return strings.Join(args, " "), nil
	}
	text, err := io.ReadAll(io.LimitReader(a.In, maxStdin+1))
	if err != nil {
		return "", Failed(fmt.Errorf("read standard input: %w", err))
	}
	return string(text), nil
}

// runLines is a workflow's task for people.
func runLines(f fields, run wire.WorkflowRun) {
	f.line("task", run.TaskID)
	f.line("status", cmp.Or(run.Delivery, string(run.Status)))
	if run.Retry.Count > 0 {
		f.line("attempts", fmt.Sprintf("%d of %d failed", run.Retry.Count, run.Retry.Max))
	}
	f.line("next attempt", day(run.Retry.NextAttemptAt))
	if run.Error != nil {
		f.line("error", strings.TrimPrefix(run.Error.Code+": "+run.Error.Message, ": "))
	}
	if len(run.Result) > 0 && string(run.Result) != "null" {
		f.line("result", string(run.Result))
	}
}
