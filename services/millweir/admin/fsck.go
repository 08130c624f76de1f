package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring/inspect"
	"github.com/millweir/millweir/services/millweir/cli"
)

// fsckFlags are what the command was asked.
type fsckFlags struct {
	*cli.App
	history, rest, deep, repair, whole bool
	effects, client, acks, since       string
	logs, canaries                     []string
}

// check judges the installation that the settings name, and mends it if that was asked for.
func check(a *cli.App) *cobra.Command {
	f := &fsckFlags{App: a}
	c := envVerb("fsck [--history [--rest]] [--repair --yes] [--effects FILE] [--client FILE [--whole]] [--acks FILE] [--logs FILE…] [--server URL]",
		"check rows, files, vectors and dead letters, or the whole log (see deploy/docs/fsck.md)", cobra.ArbitraryArgs, f.check)
	flags := c.Flags()
	flags.BoolVar(&f.history, "history", false, "judge the log of tasks by all rules, not the content alone")
	flags.BoolVar(&f.rest, "rest", false, "all work has come to its end: what is still under way is a violation")
	flags.BoolVar(&f.deep, "deep", false, "compare the values of all visible vectors with the embedding cache; reads every vector")
	flags.BoolVar(&f.repair, "repair", false, "mend what can be mended: vectors, the full-text index, rows that all else speaks against, counts of documents, files without a row (needs --yes)")
	flags.StringVar(&f.effects, "effects", "", "log of embedding calls, JSON lines")
	flags.StringVar(&f.client, "client", "", "log of what clients saw, JSON lines")
	flags.BoolVar(&f.whole, "whole", false, "the client log has every request that was ever sent")
	flags.StringVar(&f.acks, "acks", "", "log of acknowledgements, JSON lines")
	flags.StringArrayVar(&f.logs, "logs", nil, "log file in which no secret may stand; may be repeated")
	flags.StringArrayVar(&f.canaries, "canary", nil, "planted secret that must stand nowhere; may be repeated")
	flags.StringVar(&f.since, "settings-since", "", "when the retry settings got their present values, RFC 3339; older waits are not compared with them")
	return c
}

func (f *fsckFlags) check(ctx context.Context, rest []string) error {
	f.logs = append(f.logs, rest...) // --logs A B C
	if len(rest) > 0 && len(f.logs) == len(rest) {
		return cli.Usage("takes no arguments but after --logs")
	}
	if f.repair && !f.Yes {
		return cli.Unconfirmed(errors.New("--repair changes the vector store, the full-text index, rows and the upload folder; say --yes"))
	}
	settings, err := process.Load[inspect.Settings]()
	if err != nil {
		return cli.BadInput(err)
	}
	quiet := slog.New(slog.NewTextHandler(f.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	in, err := inspect.Open(ctx, &process.Env{Log: quiet, Metrics: prometheus.NewRegistry(), Ready: process.NewReady()}, settings)
	if err != nil {
		return err
	}
	defer in.Close()
	for _, what := range in.Without {
		_, _ = fmt.Fprintf(f.Err, "not looked at: %s\n", what)
	}
	return f.run(ctx, in, settings)
}

// run judges, writes the report and mends.
func (f *fsckFlags) run(ctx context.Context, in *inspect.Inspected, settings inspect.Settings) error {
	options := fsck.Options{
		History: f.history, Rest: f.rest, Deep: f.deep, Policy: settings.Policy(), DLQ: settings.DeadLetters(), Canaries: f.canaries, WholeClient: f.whole,
	}
	if f.rest {
		options.FileAge = fsck.AnyFileAge
	}
	if f.since != "" {
		at, err := time.Parse(time.RFC3339, f.since)
		if err != nil {
			return cli.Usage("--settings-since: " + err.Error())
		}
		options.Since = at
	}
	closeAll, err := f.open(&in.Evidence)
	defer closeAll()
	if err != nil {
		return cli.BadInput(err)
	}
	if f.Said("server") {
		in.Stats = f.Counts
	}
	found, err := fsck.Check(ctx, in.Evidence, options)
	if err != nil {
		return err
	}
	if err := f.WriteReport(found.Report); err != nil {
		return err
	}
	if found.Young > 0 {
		_, _ = fmt.Fprintf(f.Err, "%d files without a row are younger than a day: an upload may be under way, or a crash left them to the sweep; --rest names them\n", found.Young)
	}
	if found.Uncompared > 0 {
		_, _ = fmt.Fprintf(f.Err, "%d vectors were not compared: the embedding cache keeps a text's vector for a day after its last use\n", found.Uncompared)
	}
	if f.repair {
		return f.mend(ctx, in, found)
	}
	if n := found.Report.Violations(); n > 0 {
		return cli.Failed(fmt.Errorf("%d violations", n))
	}
	return nil
}

// open opens the files of evidence.
func (f *fsckFlags) open(e *fsck.Evidence) (closeAll func(), err error) {
	var files []*os.File
	closeAll = func() {
		for _, one := range files {
			_ = one.Close() // only read
		}
	}
	open := func(path string) (io.Reader, error) {
		one, err := os.Open(path)
		if err == nil {
			files = append(files, one)
		}
		return one, err
	}
	for path, to := range map[*string]*io.Reader{&f.effects: &e.Effects, &f.client: &e.Client, &f.acks: &e.Acks} {
		if *path == "" {
			continue
		}
		if *to, err = open(*path); err != nil {
			return closeAll, err
		}
	}
	e.Logs = map[string]io.Reader{}
	for _, path := range f.logs {
		if e.Logs[path], err = open(path); err != nil {
			return closeAll, err
		}
	}
	return closeAll, nil
}

// mend repairs, says what it did, and fails when violations are left that it cannot mend.
func (f *fsckFlags) mend(ctx context.Context, in *inspect.Inspected, found fsck.Findings) error {
	if in.Vectors == nil && len(found.Strays)+len(found.Missing) > 0 {
		return cli.Failed(errors.New("there is no vector store to mend"))
	}
	done, err := fsck.Repair(ctx, in.Evidence, found, in.Embedders...)
	_, _ = fmt.Fprintf(f.Err, "repaired: %d strays deleted, %d vectors written again, %d of them embedded anew, %d tasks woken, %d taken off the failures, rows of %d documents and the full-text index of %d knowledge bases mended, documents counted anew in %d places, %d files without a row removed\n",
		done.Deleted, done.Written, done.Paid, done.Tasks, done.Failures, done.Rows, done.Indexes, done.Counts, done.Files)
	for _, left := range done.Left {
		_, _ = fmt.Fprintf(f.Err, "not mended: %s\n", left)
	}
	if err != nil {
		return err
	}
	if left := found.Report.Violations() - int64(done.Deleted+done.Written+done.Files) - done.Mended; left > 0 {
		return cli.Failed(fmt.Errorf("%d violations are left that a repair cannot mend", left))
	}
	return nil
}
