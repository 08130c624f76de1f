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

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/suite"
	"github.com/millweir/millweir/services/millweir/cli"
)

// fsckFlags are what the command was asked.
type fsckFlags struct {
	cli.Flags
	history, rest, deep, repair, whole    bool
	effects, client, acks, since, envFile string
	logs, canaries                        list
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return fmt.Sprint(*l) }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

// newFsckFlags declares them.
func newFsckFlags(std cli.IO) *fsckFlags {
	f := &fsckFlags{Flags: cli.NewFlags(std, "fsck")}
	f.BoolVar(&f.history, "history", false, "judge the log of tasks by all rules, not the content alone")
	f.BoolVar(&f.rest, "rest", false, "all work has come to its end: what is still under way is a violation")
	f.BoolVar(&f.deep, "deep", false, "compare the values of all visible vectors with the embedding cache; reads every vector")
	f.BoolVar(&f.repair, "repair", false, "mend what can be mended: vectors, rows that all else speaks against, files without a row (needs --yes)")
	f.StringVar(&f.effects, "effects", "", "log of embedding calls, JSON lines")
	f.StringVar(&f.client, "client", "", "log of what clients saw, JSON lines")
	f.BoolVar(&f.whole, "whole", false, "the client log has every request that was ever sent")
	f.StringVar(&f.acks, "acks", "", "log of acknowledgements, JSON lines")
	f.Var(&f.logs, "logs", "log file in which no secret may stand; may be repeated")
	f.Var(&f.canaries, "canary", "planted secret that must stand nowhere; may be repeated")
	f.StringVar(&f.since, "settings-since", "", "when the retry settings got their present values, RFC 3339; older waits are not compared with them")
	f.StringVar(&f.envFile, "env-file", "", "read settings from FILE; the real environment wins")
	return f
}

// check judges the installation that the settings name, and mends it if that was asked for.
func check(ctx context.Context, std cli.IO, args []string) error {
	f := newFsckFlags(std)
	rest, err := f.ParseAll(args)
	if err != nil {
		return err
	}
	f.logs = append(f.logs, rest...) // --logs A B C
	if len(rest) > 0 && len(f.logs) == len(rest) {
		return cli.Usage("takes no arguments but after --logs")
	}
	if f.repair && !f.Yes() {
		return cli.Unconfirmed(errors.New("--repair changes the vector store, rows and the upload folder; say --yes"))
	}
	settings, err := f.load()
	if err != nil {
		return err
	}
	quiet := slog.New(slog.NewTextHandler(std.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	in, err := suite.Inspect(ctx, &process.Env{Log: quiet, Metrics: prometheus.NewRegistry(), Ready: process.NewReady()}, settings)
	if err != nil {
		return err
	}
	defer in.Close()
	for _, what := range in.Without {
		_, _ = fmt.Fprintf(std.Err, "not looked at: %s\n", what)
	}
	return f.run(ctx, std, in, settings)
}

// load reads the settings.
func (f *fsckFlags) load() (suite.Inspection, error) {
	if f.envFile != "" {
		if err := process.LoadEnvFile(f.envFile); err != nil {
			return suite.Inspection{}, cli.BadInput(err)
		}
	}
	settings, err := process.Load[suite.Inspection]()
	if err != nil {
		return settings, cli.BadInput(err)
	}
	return settings, nil
}

// run judges, writes the report and mends.
func (f *fsckFlags) run(ctx context.Context, std cli.IO, in *suite.Inspected, settings suite.Inspection) error {
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
		_, _ = fmt.Fprintf(std.Err, "%d files without a row are younger than a day: an upload may be under way, or a crash left them to the sweep; --rest names them\n", found.Young)
	}
	if found.Uncompared > 0 {
		_, _ = fmt.Fprintf(std.Err, "%d vectors were not compared: the embedding cache keeps a text's vector for a day after its last use\n", found.Uncompared)
	}
	if f.repair {
		return mend(ctx, std, in, found)
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
func mend(ctx context.Context, std cli.IO, in *suite.Inspected, found fsck.Findings) error {
	if in.Vectors == nil && len(found.Strays)+len(found.Missing) > 0 {
		return cli.Failed(errors.New("there is no vector store to mend"))
	}
	done, err := fsck.Repair(ctx, in.Evidence, in.Embedder, found)
	_, _ = fmt.Fprintf(std.Err, "repaired: %d strays deleted, %d vectors written again, %d of them embedded anew, rows of %d documents mended, %d files without a row removed\n",
		done.Deleted, done.Written, done.Paid, done.Rows, done.Files)
	for _, left := range done.Left {
		_, _ = fmt.Fprintf(std.Err, "not mended: %s\n", left)
	}
	if err != nil {
		return err
	}
	if left := found.Report.Violations() - int64(done.Deleted+done.Written+done.Files) - done.Mended; left > 0 {
		return cli.Failed(fmt.Errorf("%d violations are left that a repair cannot mend", left))
	}
	return nil
}
