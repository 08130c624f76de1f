// Package admin has the verbs that open the database themselves: migrations and API keys.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/user"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/suite"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/services/millweir/cli"
)

// Commands lists the verbs.
func Commands() []cli.Command {
	return []cli.Command{
		{Name: "dev", Args: "[--data DIR] [--addr HOST:PORT] [--queue redis|kafka]", Summary: "run everything in one process", Run: nil},
		{Name: "migrate up", Args: "[--env-file FILE]", Summary: "bring the database's schema up to date", Run: migrateUp},
		{Name: "migrate status", Args: "[--env-file FILE]", Summary: "say which migrations were applied", Run: migrateStatus},
		{Name: "fsck", Args: "[--history [--rest]] [--repair --yes] [--effects FILE] [--client FILE [--whole]] [--acks FILE] [--logs FILE…] [--server URL]", Summary: "check rows, files, vectors and dead letters, or the whole log (see deploy/docs/fsck.md)", Run: check},
		{Name: "kafka init", Args: "[--partitions 12] [--replication N] [--retention 168h] [--env-file FILE]", Summary: "make the topics of deliveries and dead letters", Run: kafkaInit},
		{Name: "timeline renew", Args: "--yes", Summary: "after a restore: believe no claim from before (see deploy/docs/runbook.md)", Run: epochRenew},
		{Name: "timeline mark", Args: "--yes", Summary: "say that UPLOAD_DIR is this database's folder although its files are lost", Run: epochMark},
		{Name: "keys create", Args: "--user ID [--role user|operator] [--scopes read,write] [--name TEXT] [--ttl 720h]", Summary: "make an API key and show it once", Run: keysCreate},
		{Name: "keys list", Args: "", Summary: "list API keys", Run: keysList},
		{Name: "keys revoke", Args: "ID", Summary: "end an API key for good", Run: keysRevoke},
	}
}

// withStore opens the database that the environment names and runs f.
func withStore(ctx context.Context, std cli.IO, name string, args []string, define func(cli.Flags), f func(flags cli.Flags, s *taskstore.Store, rest []string) error) error {
	flags := cli.NewFlags(std, name)
	envFile := flags.String("env-file", "", "read settings from FILE; the real environment wins")
	if define != nil {
		define(flags)
	}
	rest, err := flags.ParseAll(args)
	if err != nil {
		return err
	}
	if *envFile != "" {
		if err := process.LoadEnvFile(*envFile); err != nil {
			return cli.BadInput(err)
		}
	}
	cfg, err := process.Load[suite.Store]()
	if err != nil {
		return cli.BadInput(err)
	}
	store, err := suite.OpenStore(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(f(flags, store, rest), store.Close())
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
func migrateUp(ctx context.Context, std cli.IO, args []string) error {
	return withStore(ctx, std, "migrate up", args, nil, func(flags cli.Flags, s *taskstore.Store, _ []string) error {
		applied, err := s.Migrate(ctx)
		out := struct {
			Dialect  string      `json:"dialect"`
			Applied  []migration `json:"applied"`
			UpToDate bool        `json:"upToDate"`
		}{s.Dialect(), []migration{}, err == nil}
		for _, m := range applied {
			out.Applied = append(out.Applied, migration{m.Version, m.Name, shownTime(m.AppliedAt)})
		}
		return errors.Join(err, cli.EmitOne(flags, out, func(w io.Writer) {
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
func migrateStatus(ctx context.Context, std cli.IO, args []string) error {
	return withStore(ctx, std, "migrate status", args, nil, func(flags cli.Flags, s *taskstore.Store, _ []string) error {
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
		err = cli.Emit(flags, all, "MIGRATION\tAPPLIED", func(m migration) string {
			at := "missing"
			if m.AppliedAt != nil {
				at = m.AppliedAt.Format(time.RFC3339)
			}
			return fmt.Sprintf("%03d_%s\t%s", m.Version, m.Name, at)
		})
		if err == nil && missing > 0 {
			return cli.Failed(fmt.Errorf("%d migrations are missing: run millweir migrate up", missing))
		}
		return err
	})
}

// epochRenew starts a new history of the database; it needs --yes, for every running task is interrupted.
func epochRenew(ctx context.Context, std cli.IO, args []string) error {
	return withStore(ctx, std, "timeline renew", args, nil, func(flags cli.Flags, s *taskstore.Store, _ []string) error {
		if !flags.Yes() {
			return cli.Unconfirmed(errors.New("this ends the claim of every running task; say --yes"))
		}
		epoch, leases, err := s.RenewEpoch(ctx)
		if err != nil {
			return err
		}
		return cli.EmitOne(flags, map[string]string{"timeline": fmt.Sprint(epoch), "claimsEnded": fmt.Sprint(leases)}, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "timeline %d; %d claims ended\n", epoch, leases)
		})
	})
}

// epochMark writes the database's marker into the upload folder. Services do that by themselves when they find files of
// the database there; this is for a folder that has none of them any more.
func epochMark(ctx context.Context, std cli.IO, args []string) error {
	return withStore(ctx, std, "timeline mark", args, nil, func(flags cli.Flags, s *taskstore.Store, _ []string) error {
		uploads, err := process.Load[suite.Uploads]()
		if err != nil {
			return cli.BadInput(err)
		}
		if !flags.Yes() {
			return cli.Unconfirmed(fmt.Errorf("from then on files that are not in %s count as lost; say --yes", uploads.Dir))
		}
		m, err := s.Moment(ctx)
		if err != nil {
			return err
		}
		if err := ingest.MarkFolder(uploads.Dir, m.Epoch); err != nil {
			return cli.BadInput(err)
		}
		return cli.EmitOne(flags, map[string]string{"folder": uploads.Dir, "timeline": fmt.Sprint(m.Epoch)}, func(w io.Writer) {
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
		ID: k.ID, UserID: k.UserID, Role: string(k.Role), Scopes: k.Scopes.String(), Shown: k.Shown, Name: k.Name, Key: secret,
		CreatedAt: shownTime(k.CreatedAt), ExpiresAt: shownTime(k.ExpiresAt), RevokedAt: shownTime(k.RevokedAt), LastUsedAt: shownTime(k.LastUsedAt),
	}
}

// keysCreate makes a key; its secret is shown here and never again.
func keysCreate(ctx context.Context, std cli.IO, args []string) error {
	var in auth.NewKey
	var role, scopes string
	define := func(f cli.Flags) {
		f.StringVar(&in.UserID, "user", "", "whose documents it reaches")
		f.StringVar(&role, "role", string(taskstate.RoleUser), "user or operator")
		f.StringVar(&scopes, "scopes", auth.AllScopes().String(), "read, write or both")
		f.StringVar(&in.Name, "name", "", "what it is for")
		f.DurationVar(&in.TTL, "ttl", 0, "life time; 0: no end")
	}
	return withStore(ctx, std, "keys create", args, define, func(flags cli.Flags, s *taskstore.Store, _ []string) error {
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
		return cli.EmitOne(flags, showKey(key, secret), func(w io.Writer) {
			_, _ = fmt.Fprintf(std.Err, "key %s of %s (%s); it is shown only now:\n", key.ID, key.UserID, key.Role)
			_, _ = fmt.Fprintln(w, secret)
		})
	})
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
func keysList(ctx context.Context, std cli.IO, args []string) error {
	const most = 1000
	return withStore(ctx, std, "keys list", args, nil, func(flags cli.Flags, s *taskstore.Store, _ []string) error {
		keys, err := auth.New(s, slog.New(slog.DiscardHandler), time.Now).List(ctx, nil, most)
		if err != nil {
			return err
		}
		all := make([]shownKey, len(keys))
		for i, k := range keys {
			all[i] = showKey(k, "")
		}
		return cli.Emit(flags, all, "ID\tUSER\tROLE\tSCOPES\tKEY\tCREATED\tENDS\tLAST USED\tNAME", func(k shownKey) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s…\t%s\t%s\t%s\t%s", k.ID, k.UserID, k.Role, k.Scopes, k.Shown,
				date(k.CreatedAt), ends(k), date(k.LastUsedAt), strings.Join(strings.Fields(k.Name), " "))
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
func keysRevoke(ctx context.Context, std cli.IO, args []string) error {
	return withStore(ctx, std, "keys revoke", args, nil, func(flags cli.Flags, s *taskstore.Store, rest []string) error {
		if len(rest) != 1 {
			return cli.Usage("needs exactly one key id")
		}
		err := auth.New(s, slog.New(slog.DiscardHandler), time.Now).Revoke(ctx, here(), rest[0])
		if errors.Is(err, auth.ErrKeyNotFound) {
			return cli.NotFound(err)
		}
		if err != nil {
			return err
		}
		return cli.EmitOne(flags, map[string]string{"revoked": rest[0]}, func(io.Writer) {})
	})
}
