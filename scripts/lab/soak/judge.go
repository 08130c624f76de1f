package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/fsck/rules"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/judge"
	"github.com/millweir/millweir/scripts/lab/tables"
)

// count reads how much has happened and how much is under way; a database that is away changes nothing.
func (s *soak) count(ctx context.Context) {
	var last, open int64
	db := s.world.DB.Reader()
	if db.QueryRowContext(ctx, `SELECT COUNT(*) FROM ingest_task_log`).Scan(&last) == nil {
		s.last.Store(last)
	}
	if db.QueryRowContext(ctx, `SELECT COUNT(*) FROM ingest_task WHERE status IN ('QUEUED', 'RUNNING', 'RETRYING')`).Scan(&open) == nil {
		s.backlog.Store(open)
	}
}

// heal ends every fault and waits until all processes are ready.
func (s *soak) heal(ctx context.Context) error {
	s.world.Commits.Cut(0, s.randomOf("heal"))
	return errors.Join(s.world.Net.Heal(), s.fleet.unasked(), s.fleet.ready(ctx, readyLimit))
}

// rest lets the embedding service work, and held tasks go, and waits until all work has ended.
func (s *soak) rest(ctx context.Context) error {
	s.world.Embed.Clear()
	return await.Until(ctx, s.quiet, time.Second, func(ctx context.Context) error {
		if err := s.resumeAll(ctx); err != nil {
			return err
		}
		return s.audit().Settled(ctx, 0)
	})
}

// resumeAll lets every held task go.
func (s *soak) resumeAll(ctx context.Context) error {
	held, err := tables.Texts(ctx, s.world.DB.Reader(), `SELECT id FROM ingest_task WHERE status = 'SUSPENDED' LIMIT 500`)
	for _, id := range held {
		if err := s.crowd.operator[0].Resume(ctx, id); err != nil {
			return fmt.Errorf("resume %s: %w", id, err)
		}
	}
	return err
}

// audit is what both checks look at.
func (s *soak) audit() judge.Audit {
	return judge.Audit{
		DB: s.world.DB.Reader(), Vectors: s.world.Vectors, Stream: s.world.Stream, World: s.world,
		AnyEnd: true, RepliesLost: true, Operators: []string{operatorName}, Canaries: s.crowd.secrets,
	}
}

// ask is a check whose failure shows the whole log of the first guilty task.
func (s *soak) ask(ctx context.Context, a judge.Audit) (history.Report, error) {
	report, err := a.Judge(ctx)
	var bad *judge.AuditError
	if !errors.As(err, &bad) {
		return report, err
	}
	for _, r := range bad.Report {
		for _, e := range r.Examples {
			if log, logErr := tables.Log(ctx, a.DB, e.Task); logErr == nil && len(log) > 0 {
				return report, fmt.Errorf("%w\nlog of task %s:\n%s", err, e.Task, history.Words(log))
			}
		}
	}
	return report, err
}

// required are the rules that must have judged something on a transport.
func required(on stage.Transport) []string {
	return slices.DeleteFunc(append(rules.Applicable(), on.Rules...), func(id string) bool { return slices.Contains(on.Without, id) })
}

// judge is the verdict: every applicable rule must have judged something and found nothing.
func (s *soak) judge(ctx context.Context, took time.Duration, moving history.Report) (string, error) {
	if err := s.journal.close(); err != nil {
		return "", err
	}
	var total int64
	if err := s.world.DB.Reader().QueryRowContext(ctx, `SELECT COUNT(*) FROM ingest_task_log`).Scan(&total); err != nil {
		return "", err
	}
	_, _ = fmt.Fprintf(s.out, "requests: %s\nfaults: %s\n", s.journal.summary(), s.nemesis.done())
	client, err := os.Open(s.journal.path)
	if err != nil {
		return "", err
	}
	defer client.Close() //nolint:errcheck // only read
	began := time.Now()
	a := s.audit()
	a.ClientLog, a.Whole, a.Gateway = client, true, s.crowd.operator[0]
	report, err := s.ask(ctx, a)
	if err == nil {
		report = rules.Merge(report, moving)
		err = report.RequireJudged(required(s.transport)...)
	}
	for _, r := range report {
		if r.Judged+r.Violations > 0 {
			_, _ = fmt.Fprintf(s.out, "  %-4s %8d judged, %d violations\n", r.Rule, r.Judged, r.Violations)
		}
	}
	if err = errors.Join(s.problems.err(), err); err == nil && total < s.options.transitions {
		err = fmt.Errorf("too few: %d were asked for", s.options.transitions)
	}
	if err != nil {
		return "", fmt.Errorf("%d transitions in %.0f s: %w", total, took.Seconds(), err)
	}
	return fmt.Sprintf("%d transitions in %.0f s, judged in %.0f s, 0 violations", total, took.Seconds(), time.Since(began).Seconds()), nil
}
