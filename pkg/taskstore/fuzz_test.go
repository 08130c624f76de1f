package taskstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstore"
)

// FuzzAddress checks any address of a database, and ones whose password is known, however badly it is written:
// no message shows it.
func FuzzAddress(f *testing.F) {
	f.Add("u:p@tcp(h:3306)/d?timeout=3s", "u", "", "tcp(h)/d")
	f.Add("mysql://u:p%40@h/d", "u", "/x", "h:5432/d?sslmode=disable")
	f.Add("postgres://u@h,i:1/d?target_session_attrs=any", "", "?x=", "h/d")
	f.Add("sqlite:", "a b", "@", "[::1/d")
	f.Add("host=h user=u password='x", "%", "%zz", "h:port/d")
	f.Fuzz(func(t *testing.T, raw, user, middle, tail string) {
		_ = taskstore.Config{MySQLDSN: raw}.Validate()
		_ = taskstore.Config{DatabaseURL: raw}.Validate()
		const secret = "hunter2canary"
		login := user + ":" + secret + middle + "@" + tail
		for _, cfg := range []taskstore.Config{
			{MySQLDSN: login}, {DatabaseURL: "mysql://" + login}, {DatabaseURL: "mariadb://" + login}, {DatabaseURL: "postgres://" + login},
		} {
			if err := cfg.Validate(); err != nil {
				require.NotContains(t, err.Error(), secret)
			}
		}
	})
}
