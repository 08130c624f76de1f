package process

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"

	"github.com/millweir/millweir/pkg/telemetry"
)

// hidden is what Secret and DSN have in common.
type hidden interface{ set(string) }

// Secret is a setting that is never shown: every way of printing it gives "***", or "" when it is empty.
type Secret struct{ value string }

// NewSecret hides a value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value; call it only where it is used.
func (s Secret) Reveal() string { return s.value }

// Empty tells whether there is no value.
func (s Secret) Empty() bool { return s.value == "" }

// String is "***", or "" when there is no value.
func (s Secret) String() string {
	if s.value == "" {
		return ""
	}
	return telemetry.Hidden
}

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// Format prints String whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalJSON hides the value.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// MarshalText hides the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// UnmarshalText takes the value from the environment.
func (s *Secret) UnmarshalText(b []byte) error {
	s.set(string(b))
	return nil
}

// set takes a configured value; from then on it is hidden in whatever this process says.
func (s *Secret) set(v string) {
	s.value = v
	telemetry.Conceal(v)
}

// DSN is the address of a server with a login in it (MYSQL_DSN, REDIS_URL …):
// it prints with the login hidden, so that an operator still sees where it leads.
type DSN struct{ value string }

// NewDSN hides the login in a value.
func NewDSN(value string) DSN { return DSN{value} }

// Reveal returns the whole value; call it only where the connection is made.
func (d DSN) Reveal() string { return d.value }

// Empty tells whether there is no value.
func (d DSN) Empty() bool { return d.value == "" }

// String is the address without its login.
func (d DSN) String() string { return telemetry.Redact(d.value) }

// GoString is String.
func (d DSN) GoString() string { return d.String() }

// Format prints String whatever the verb.
func (d DSN) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, d.String()) }

// MarshalText hides the login; JSON uses it too.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// LogValue hides the login.
func (d DSN) LogValue() slog.Value { return slog.StringValue(d.String()) }

// UnmarshalText takes the value from the environment.
func (d *DSN) UnmarshalText(b []byte) error {
	d.set(string(b))
	return nil
}

// set takes a configured value; from then on the password in it is hidden in whatever this process says.
func (d *DSN) set(v string) {
	d.value = v
	telemetry.Conceal(password(v))
	if plain, err := url.PathUnescape(password(v)); err == nil {
		telemetry.Conceal(plain)
	}
}

// password is what stands between the first colon and the last @ of a login, in URLs and in the MySQL driver's form.
func password(dsn string) string {
	if _, rest, isURL := strings.Cut(dsn, "://"); isURL {
		dsn = rest
	}
	at := strings.LastIndexByte(dsn, '@')
	if at < 0 {
		return ""
	}
	_, secret, _ := strings.Cut(dsn[:at], ":")
	return secret
}
