// Package admin has the verbs that open the database themselves: migrations and API keys.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/services/millweir/cli"
)

// Commands are the verbs.
func Commands(a *cli.App) []*cobra.Command {
	return []*cobra.Command{
		cli.Group("migrate", "the schema", migrateUp(a), migrateStatus(a)),
		check(a),
		doctor(a),
		reindex(a),
		exportPending(a),
		importPending(a),
		cli.Group("kafka", "topics of Kafka", kafkaInit(a)),
		cli.Group("timeline", "which history of the database this is", epochRenew(a), epochMark(a)),
		cli.Group("keys", "API keys", keysCreate(a), keysList(a), keysRevoke(a)),
	}
}

// storeVerb is a verb on the database that the environment names.
func storeVerb(use, short string, args cobra.PositionalArgs, f func(ctx context.Context, s *taskstore.Store, rest []string) error) *cobra.Command {
	return envVerb(use, short, args, func(ctx context.Context, rest []string) error {
		cfg, err := process.Load[database.Settings]()
		if err != nil {
			return cli.BadInput(err)
		}
		store, err := database.Open(ctx, cfg)
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, store, rest), store.Close())
	})
}

// envVerb is a verb that reads settings, from a file too when --env-file names one.
func envVerb(use, short string, args cobra.PositionalArgs, f func(ctx context.Context, rest []string) error) *cobra.Command {
	var envFile string
	c := cli.Verb(use, short, args, func(ctx context.Context, rest []string) error {
		if envFile != "" {
			if err := process.LoadEnvFile(envFile); err != nil {
				return cli.BadInput(err)
			}
		}
		return f(ctx, rest)
	})
	c.Flags().StringVar(&envFile, "env-file", "", "read settings from FILE; the real environment wins")
	return c
}

// migration is one as it is shown; appliedAt null: it is missing.
type migration struct {
	Version   int        `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"appliedAt"`
}

// shownTime is a time in JSON; null: none.
func shownTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// migrateUp applies what is missing.
func migrateUp(a *cli.App) *cobra.Command {
	return storeVerb("up [--env-file FILE]", "bring the database's schema up to date", cli.Needs(), func(ctx context.Context, s *taskstore.Store, _ []string) error {
		if err := wiring.CheckVersion(ctx, s.ServerVersion); err != nil {
			return err
		}
		applied, err := s.Migrate(ctx)
		out := struct {
			Dialect  string      `json:"dialect"`
			Applied  []migration `json:"applied"`
			UpToDate bool        `json:"upToDate"`
		}{s.Dialect(), []migration{}, err == nil}
		for _, m := range applied {
			out.Applied = append(out.Applied, migration{m.Version, m.Name, shownTime(m.AppliedAt)})
		}
		return errors.Join(err, cli.One(a, out, func(w io.Writer) {
			for _, m := range out.Applied {
				_, _ = fmt.Fprintf(w, "applied %03d_%s\n", m.Version, m.Name)
			}
			if out.UpToDate {
				_, _ = fmt.Fprintf(w, "%s: the schema is up to date\n", out.Dialect)
			}
		}))
	})
}

// migrateStatus lists all migrations; exit 1 when some are missing.
func migrateStatus(a *cli.App) *cobra.Command {
	return storeVerb("status [--env-file FILE]", "say which migrations were applied", cli.Needs(), func(ctx context.Context, s *taskstore.Store, _ []string) error {
		states, err := s.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		missing := 0
		all := make([]migration, len(states))
		for i, m := range states {
			if all[i] = (migration{m.Version, m.Name, shownTime(m.AppliedAt)}); m.AppliedAt.IsZero() {
				missing++
			}
		}
		err = cli.Table(a, all, "MIGRATION\tAPPLIED", func(m migration) []any {
			at := "missing"
			if m.AppliedAt != nil {
				at = m.AppliedAt.Format(time.RFC3339)
			}
			return []any{fmt.Sprintf("%03d_%s", m.Version, m.Name), at}
		})
		if err == nil && missing > 0 {
			return cli.Failed(fmt.Errorf("%d migrations are missing: run millweir migrate up", missing))
		}
		return err
	})
}

// epochRenew starts a new history of the database; it needs --yes, for every running task is interrupted.
func epochRenew(a *cli.App) *cobra.Command {
	return storeVerb("renew --yes", "after a restore: believe no claim from before (see deploy/docs/runbook.md)", cli.Needs(), func(ctx context.Context, s *taskstore.Store, _ []string) error {
		if !a.Yes {
			return cli.Unconfirmed(errors.New("this ends the claim of every running task; say --yes"))
		}
		epoch, leases, err := s.RenewEpoch(ctx)
		if err != nil {
			return err
		}
		return cli.One(a, map[string]string{"timeline": fmt.Sprint(epoch), "claimsEnded": fmt.Sprint(leases)}, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "timeline %d; %d claims ended\n", epoch, leases)
		})
	})
}

// epochMark writes the database's marker into the upload folder. Services do that by themselves when they find files of
// the database there; this is for a folder that has none of them any more.
func epochMark(a *cli.App) *cobra.Command {
	return storeVerb("mark --yes", "say that UPLOAD_DIR is this database's folder although its files are lost", cli.Needs(), func(ctx context.Context, s *taskstore.Store, _ []string) error {
		uploads, err := process.Load[documents.Uploads]()
		if err != nil {
			return cli.BadInput(err)
		}
		if !a.Yes {
			return cli.Unconfirmed(fmt.Errorf("from then on files that are not in %s count as lost; say --yes", uploads.Dir))
		}
		m, err := s.Moment(ctx)
		if err != nil {
			return err
		}
		if err := files.Mark(uploads.Dir, m.Epoch); err != nil {
			return cli.BadInput(err)
		}
		return cli.One(a, map[string]string{"folder": uploads.Dir, "timeline": fmt.Sprint(m.Epoch)}, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "%s is marked with timeline %d\n", uploads.Dir, m.Epoch)
		})
	})
}

// shownKey is an API key as it is shown; its secret only when it is made.
type shownKey struct {
	ID         string     `json:"keyId"`
	UserID     string     `json:"userId"`
	Role       string     `json:"role"`
	Scopes     string     `json:"scopes"`
	Bases      []string   `json:"knowledgeBases,omitempty"`
	Shown      string     `json:"shown"`
	Name       string     `json:"name"`
	CreatedAt  *time.Time `json:"createdAt"`
	ExpiresAt  *time.Time `json:"expiresAt"`
	RevokedAt  *time.Time `json:"revokedAt"`
	LastUsedAt *time.Time `json:"lastUsedAt"`
	Key        string     `json:"key,omitempty"`
}

func showKey(k auth.Key, secret string) shownKey {
	return shownKey{
		ID: k.ID, UserID: k.UserID, Role: string(k.Role), Scopes: k.Scopes.String(), Bases: k.Bases, Shown: k.Shown, Name: k.Name, Key: secret,
		CreatedAt: shownTime(k.CreatedAt), ExpiresAt: shownTime(k.ExpiresAt), RevokedAt: shownTime(k.RevokedAt), LastUsedAt: shownTime(k.LastUsedAt),
	}
}

// keysCreate makes a key; its secret is shown here and never again.
func keysCreate(a *cli.App) *cobra.Command {
	var in auth.NewKey
	var role, scopes string
	use := "create --user ID [--role user|operator] [--scopes read,write] [--kb NAME,…] [--name TEXT] [--ttl 720h]"
	c := storeVerb(use, "make an API key and show it once", cli.Needs(), func(ctx context.Context, s *taskstore.Store, _ []string) error {
		in.Role, in.By = taskstate.Role(role), here()
		var err error
		if in.Scopes, err = auth.ParseScopes(strings.Split(scopes, ",")...); err != nil {
			return cli.BadInput(err)
		}
		secret, key, err := auth.New(s, slog.New(slog.DiscardHandler), time.Now).Create(ctx, in)
		if errors.Is(err, auth.ErrInvalidInput) {
			return cli.BadInput(err)
		}
		if err != nil {
			return err
		}
		return cli.One(a, showKey(key, secret), func(w io.Writer) {
			_, _ = fmt.Fprintf(a.Err, "key %s of %s (%s); it is shown only now:\n", key.ID, key.UserID, key.Role)
			_, _ = fmt.Fprintln(w, secret)
		})
	})
	f := c.Flags()
	f.StringVar(&in.UserID, "user", "", "whose documents it reaches")
	f.StringVar(&role, "role", string(taskstate.RoleUser), "user or operator")
	f.StringVar(&scopes, "scopes", auth.AllScopes().String(), "read, write, search, upload, with commas, or status")
	f.StringSliceVar(&in.Bases, "kb", nil, "knowledge bases that it is limited to, ids or names, with commas; none: all of its user")
	f.StringVar(&in.Name, "name", "", "what it is for")
	f.DurationVar(&in.TTL, "ttl", 0, "life time; 0: no end")
	return c
}

// limits says to how many knowledge bases a key is limited.
func limits(k shownKey) string {
	if k.Bases == nil {
		return "all"
	}
	return strconv.Itoa(len(k.Bases))
}

// here is the person at this command line, for the audit log: the name that the system knows him by.
func here() audit.Source {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return audit.Source{Actor: "cli:" + name, Role: taskstate.RoleOperator}
}

// keysList lists the newest keys.
func keysList(a *cli.App) *cobra.Command {
	const most = 1000
	return storeVerb("list", "list API keys", cli.Needs(), func(ctx context.Context, s *taskstore.Store, _ []string) error {
		keys, err := auth.New(s, slog.New(slog.DiscardHandler), time.Now).List(ctx, nil, most)
		if err != nil {
			return err
		}
		all := make([]shownKey, len(keys))
		for i, k := range keys {
			all[i] = showKey(k, "")
		}
		return cli.Table(a, all, "ID\tUSER\tROLE\tSCOPES\tKEY\tCREATED\tENDS\tLAST USED\tBASES\tNAME", func(k shownKey) []any {
			return []any{
				k.ID, k.UserID, k.Role, k.Scopes, k.Shown + "…", date(k.CreatedAt), ends(k), date(k.LastUsedAt), limits(k), strings.Join(strings.Fields(k.Name), " "),
			}
		})
	})
}

// date renders a time of a list.
func date(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04")
}

// ends says when a key ends, or ended.
func ends(k shownKey) string {
	if k.RevokedAt != nil {
		return "revoked " + date(k.RevokedAt)
	}
	return date(k.ExpiresAt)
}

// keysRevoke ends a key.
func keysRevoke(a *cli.App) *cobra.Command {
	return storeVerb("revoke ID", "end an API key for good", cli.Needs("a key id"), func(ctx context.Context, s *taskstore.Store, rest []string) error {
		err := auth.New(s, slog.New(slog.DiscardHandler), time.Now).Revoke(ctx, here(), rest[0])
		if errors.Is(err, auth.ErrKeyNotFound) {
			return cli.NotFound(err)
		}
		if err != nil {
			return err
		}
		return cli.One(a, map[string]string{"revoked": rest[0]}, func(io.Writer) {})
	})
}
