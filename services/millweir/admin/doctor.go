package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/inspect"
	"github.com/millweir/millweir/services/millweir/cli"
)

// doctor says what is wrong with an installation and how to mend it: by HTTP, and where the environment names a database from the
// inside too. Nothing is changed.
func doctor(a *cli.App) *cobra.Command {
	return envVerb("doctor [--env-file FILE] [--server URL]", "say what is wrong with an installation, and how to mend it", cli.Needs(),
		func(ctx context.Context, _ []string) error {
			found := a.Examine(ctx)
			for _, line := range process.UnknownVariables(os.Environ(), inspect.Settings{}) {
				found = append(found, cli.Finding{State: cli.FindingWarn, Check: "settings", Text: line, Remedy: "Mend the name, or remove the variable."})
			}
			if os.Getenv("DATABASE_URL")+os.Getenv("MYSQL_DSN")+os.Getenv("DATABASE_URL_FILE")+os.Getenv("MYSQL_DSN_FILE") != "" {
				found = append(found, inside(ctx)...)
			}
			return a.Diagnose(found)
		})
}

// inside opens what the settings name and looks at it, with the checks that services have for their own readiness.
func inside(ctx context.Context) []cli.Finding {
	settings, err := process.Load[inspect.Settings]()
	if err != nil {
		return []cli.Finding{{State: cli.FindingFail, Check: "settings", Text: oneLine(err), Remedy: "Mend the settings that are named."}}
	}
	found := []cli.Finding{{State: cli.FindingOK, Check: "settings", Text: "all can be read"}}
	env := &process.Env{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady()}
	in, err := inspect.Open(ctx, env, settings)
	if err != nil {
		return append(found, cli.Finding{State: cli.FindingFail, Check: "database", Text: oneLine(err), Remedy: "See that the server runs and that its address is right."})
	}
	defer in.Close()
	for _, what := range in.Without {
		found = append(found, cli.Finding{State: cli.FindingWarn, Check: "settings", Text: "not looked at: " + what, Remedy: "Say the settings of the services (--env-file)."})
	}
	found = append(found, cli.OfReport(env.Ready.Check(ctx), "here: ")...)
	found = append(found, versions(ctx, in)...)
	found = append(found, migrated(ctx, in), folder(ctx, in))
	return append(found, durable(ctx, in)...)
}

// oneLine is an error as a cell of a table.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// failed is a finding of a look that did not come about.
func failed(check string, err error) cli.Finding {
	return cli.Finding{State: cli.FindingFail, Check: check, Text: oneLine(err), Remedy: "See that the server runs and that its address is right."}
}

// versions says which servers these are, and which are too old.
func versions(ctx context.Context, in *inspect.Inspected) (found []cli.Finding) {
	const check = "server version"
	for _, ask := range in.Versions {
		product, version, err := ask(ctx)
		need := wiring.TooOld(product, version)
		switch {
		case err != nil:
			found = append(found, failed(check, err))
		case version == "":
			found = append(found, cli.Finding{State: cli.FindingOK, Check: check, Text: product + " does not tell its version"})
		case need != "":
			found = append(found, cli.Finding{
				State: cli.FindingFail, Check: check, Text: product + " " + version + " is too old", Remedy: "Upgrade it to " + need + " or later.",
			})
		default:
			found = append(found, cli.Finding{State: cli.FindingOK, Check: check, Text: product + " " + version})
		}
	}
	return found
}

// migrated says whether the schema is this program's.
func migrated(ctx context.Context, in *inspect.Inspected) cli.Finding {
	const check = "migrations"
	states, err := in.Store.MigrationStatus(ctx)
	if err != nil {
		return failed(check, err)
	}
	missing := 0
	for _, m := range states {
		if m.AppliedAt.IsZero() {
			missing++
		}
	}
	if missing > 0 {
		return cli.Finding{State: cli.FindingFail, Check: check, Text: fmt.Sprintf("%d of %d are missing", missing, len(states)), Remedy: "millweir migrate up"}
	}
	return cli.Finding{State: cli.FindingOK, Check: check, Text: fmt.Sprintf("all %d are applied (%s)", len(states), in.Store.Dialect())}
}

// folder says whether the upload folder is the database's, by its marker.
func folder(ctx context.Context, in *inspect.Inspected) cli.Finding {
	const check = "upload folder"
	if in.Files == nil {
		return cli.Finding{State: cli.FindingWarn, Check: check, Text: "it is not here", Remedy: "Run doctor where UPLOAD_DIR is mounted."}
	}
	m, err := in.Store.Moment(ctx)
	if err != nil {
		return failed(check, err)
	}
	switch seen, err := in.Files.Timeline(); {
	case err != nil:
		return failed(check, err)
	case seen == 0:
		return cli.Finding{State: cli.FindingWarn, Check: check, Text: "it has no marker yet", Remedy: "ingest-api makes it when it starts; check that both see the same folder."}
	case seen != m.Epoch:
		return cli.Finding{
			State: cli.FindingFail, Check: check, Text: fmt.Sprintf("its marker says timeline %d, the database %d", seen, m.Epoch),
			Remedy: "Mount the folder of this database; after a restore see millweir timeline in deploy/docs/runbook.md.",
		}
	}
	return cli.Finding{State: cli.FindingOK, Check: check, Text: "it is this database's"}
}

// durable says what database and queue keep of what they have acknowledged.
func durable(ctx context.Context, in *inspect.Inspected) []cli.Finding {
	const check = "durability"
	kept, err := in.Store.Durability(ctx)
	if err != nil {
		return []cli.Finding{failed(check, err)}
	}
	found := []cli.Finding{}
	for _, s := range kept.Weak() {
		state := cli.FindingWarn
		if s.Level == sqldb.LevelNone {
			state = cli.FindingFail
		}
		found = append(found, cli.Finding{State: state, Check: check, Text: s.String() + ": " + s.Loses, Remedy: "Set " + s.Name + "=" + s.Want + "."})
	}
	if len(found) == 0 {
		found = append(found, cli.Finding{State: cli.FindingOK, Check: check, Text: "the database keeps all that it has committed"})
	}
	if in.Keeps == nil {
		return found
	}
	keeps, err := in.Keeps(ctx)
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil:
		found = append(found, failed("queue", err))
	default: // no promise depends on it: deliveries are made again from the table
		found = append(found, cli.Finding{State: cli.FindingOK, Check: "queue", Text: "keeps of deliveries: " + keeps})
	}
	return found
}
