package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sample has a field of every kind. The tests that set variables are not parallel: the environment is the process's.
type sample struct {
	Queue    string        `envconfig:"INGEST_QUEUE" default:"redis" allowed:"redis|kafka" desc:"the transport"`
	Attempts int           `envconfig:"INGEST_REDIS_MAX_ATTEMPTS" default:"10" allowed:"1..100" desc:"attempts of a task"`
	Backoff  int           `envconfig:"INGEST_REDIS_RETRY_BASE_BACKOFF_MS" default:"1000" allowed:"0.." desc:"ms"`
	DLQ      string        `envconfig:"INGEST_REDIS_DLQ_STREAM_KEY" default:"ingest:tasks:dlq" desc:"empty: off"`
	Wait     time.Duration `envconfig:"WAIT" default:"1m" allowed:"0..1h" desc:"how long"`
	Dry      bool          `envconfig:"ZOMBIE_DRY_RUN" desc:"only look"`
	Proxies  []string      `envconfig:"TRUSTED_PROXIES" desc:"list"`
	Key      Secret        `envconfig:"EMBEDDING_API_KEY" desc:"key"`
	DB       DSN           `envconfig:"MYSQL_DSN" required:"true" desc:"the database"`
	Ratio    float64       `envconfig:"RATIO" default:"0.5" allowed:"0..1"`
	inner    int
}

// Validate lets a test see that it is called.
func (s *sample) Validate() error {
	if s.Queue == "kafka" && s.Attempts == 1 {
		return BadSetting("INGEST_QUEUE", "kafka wants more than one attempt")
	}
	return nil
}

const canary = "c4naryPa55"

func TestLoadTakesDefaultsAndValues(t *testing.T) {
	t.Setenv("MYSQL_DSN", "app:"+canary+"@tcp(db)/ingest")
	t.Setenv("INGEST_REDIS_DLQ_STREAM_KEY", "")
	t.Setenv("INGEST_REDIS_MAX_ATTEMPTS", "")
	t.Setenv("INGEST_REDIS_RETRY_BASE_BACKOFF_MS", "0")
	t.Setenv("WAIT", "90s")
	t.Setenv("TRUSTED_PROXIES", "10.0.0.0/8,::1")
	got, err := Load[sample]()
	require.NoError(t, err)
	require.Equal(t, sample{
		Queue: "redis", Attempts: 10, Backoff: 0, DLQ: "", Wait: 90 * time.Second, Proxies: []string{"10.0.0.0/8", "::1"},
		DB: NewDSN("app:" + canary + "@tcp(db)/ingest"), Ratio: 0.5,
	}, got, "an empty text is a value, an empty number is none")
	require.Zero(t, got.inner)
}

func TestLoadNamesEveryProblem(t *testing.T) {
	t.Setenv("INGEST_QUEUE", "rabbit")
	t.Setenv("INGEST_REDIS_MAX_ATTEMPTS", "0")
	t.Setenv("INGEST_REDIS_RETRY_BASE_BACKOFF_MS", "1s")
	t.Setenv("WAIT", "2h")
	t.Setenv("ZOMBIE_DRY_RUN", "perhaps")
	t.Setenv("RATIO", "NaN?")
	_, err := Load[sample]()
	require.ErrorIs(t, err, ErrBadSetting)
	require.Equal(t, []string{
		`INGEST_QUEUE: "rabbit" is unknown, allowed: redis|kafka`,
		`INGEST_REDIS_MAX_ATTEMPTS: 0 is out of range, allowed: 1..100`,
		`INGEST_REDIS_RETRY_BASE_BACKOFF_MS: "1s" is not a whole number, allowed: 0..`,
		`WAIT: 2h0m0s is out of range, allowed: 0..1h`,
		`ZOMBIE_DRY_RUN: "perhaps" is not true or false`,
		`MYSQL_DSN: is not set: the database`,
		`RATIO: "NaN?" is not a number, allowed: 0..1`,
	}, strings.Split(err.Error(), "\n"))
}

func TestLoadCallsValidate(t *testing.T) {
	t.Setenv("MYSQL_DSN", "x")
	t.Setenv("INGEST_QUEUE", "kafka")
	t.Setenv("INGEST_REDIS_MAX_ATTEMPTS", "1")
	_, err := Load[sample]()
	require.ErrorIs(t, err, ErrBadSetting)
	require.EqualError(t, err, "INGEST_QUEUE: kafka wants more than one attempt")
}

func TestPartsHaveConfigsOfTheirOwn(t *testing.T) {
	type part struct {
		Group string `envconfig:"INGEST_STREAM_GROUP" default:"ingest-workers" allowed:"ingest-workers|other"`
	}
	type whole struct {
		Part part
	}
	t.Setenv("INGEST_STREAM_GROUP", "other")
	got, err := Load[whole]()
	require.NoError(t, err)
	require.Equal(t, "other", got.Part.Group)
	t.Setenv("INGEST_STREAM_GROUP", "third")
	_, err = Load[whole]()
	require.ErrorContains(t, err, `INGEST_STREAM_GROUP: "third" is unknown`)
	var out bytes.Buffer
	require.NoError(t, PrintEnv(&out, got))
	require.Equal(t, "INGEST_STREAM_GROUP=other\n", out.String())
}

func TestSecretsComeFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(file, []byte(canary+"\n"), 0o600))
	t.Setenv("MYSQL_DSN_FILE", file)
	got, err := Load[sample]()
	require.NoError(t, err)
	require.Equal(t, canary, got.DB.Reveal())

	t.Setenv("MYSQL_DSN", "both")
	_, err = Load[sample]()
	require.ErrorContains(t, err, "MYSQL_DSN: is set and so is MYSQL_DSN_FILE")

	t.Setenv("MYSQL_DSN", "")
	t.Setenv("MYSQL_DSN_FILE", file+".missing")
	_, err = Load[sample]()
	require.ErrorContains(t, err, "MYSQL_DSN_FILE: ")
}

func TestSecretsNeverPrint(t *testing.T) {
	t.Parallel()
	type holder struct {
		Key Secret
		DB  DSN
	}
	h := holder{NewSecret(canary), NewDSN("redis://u:" + canary + "@h:6379/0")}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", h.Key, h.DB, &h)
	}
	b, err := json.Marshal(h)
	require.NoError(t, err)
	out.Write(b)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", h.Key, "db", h.DB, "h", h)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "key", h.Key, "db", h.DB, "h", h)
	out.WriteString(errors.Join(fmt.Errorf("dial %v with %v", h.DB, h.Key)).Error())
	require.NotContains(t, out.String(), canary)
	require.NotContains(t, out.String(), fmt.Sprintf("%x", canary))
	require.JSONEq(t, `{"Key":"***","DB":"redis://***@h:6379/0"}`, string(b))
	require.Empty(t, Secret{}.String())
	require.True(t, Secret{}.Empty() && DSN{}.Empty() && !h.Key.Empty() && !h.DB.Empty())
}

func TestPrinting(t *testing.T) {
	t.Setenv("MYSQL_DSN", "app:"+canary+"@tcp(db)/ingest")
	t.Setenv("EMBEDDING_API_KEY", canary)
	t.Setenv("WAIT", "60s")
	cfg, err := Load[sample]()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, PrintEnv(&out, cfg))
	require.Equal(t, `INGEST_QUEUE=redis
INGEST_REDIS_MAX_ATTEMPTS=10
INGEST_REDIS_RETRY_BASE_BACKOFF_MS=1000
INGEST_REDIS_DLQ_STREAM_KEY=ingest:tasks:dlq
WAIT=1m0s
ZOMBIE_DRY_RUN=false
TRUSTED_PROXIES=
EMBEDDING_API_KEY=***
MYSQL_DSN=***@tcp(db)/ingest
RATIO=0.5
`, out.String())
	changed := changedSettings(cfg)
	require.Equal(t, []slog.Attr{slog.String("EMBEDDING_API_KEY", "***"), slog.String("MYSQL_DSN", "***@tcp(db)/ingest")}, changed,
		"60s is the default 1m")

	out.Reset()
	require.NoError(t, PrintHelp(&out, common{}, sample{}))
	for _, want := range []string{"LOG_LEVEL", "debug|info|warn|error", "MYSQL_DSN", "(required)", "1..100", "the transport", "NAME_FILE"} {
		require.Contains(t, out.String(), want)
	}
}

func TestEnvExample(t *testing.T) {
	t.Parallel()
	type other struct {
		Queue string `envconfig:"INGEST_QUEUE" default:"redis" allowed:"redis|kafka" desc:"the transport"`
		Addr  string `envconfig:"HTTP_ADDR" default:"127.0.0.1:8081" desc:"where to listen"`
	}
	var out bytes.Buffer
	require.NoError(t, WriteEnvExample(&out, Section{"all services", CommonSettings()}, Section{"worker", sample{}}, Section{"api", &other{}}))
	text := out.String()
	require.Equal(t, 1, strings.Count(text, "# INGEST_QUEUE=redis\n"), text)
	require.Contains(t, text, "# ---- api\n# where to listen\n# HTTP_ADDR=127.0.0.1:8081\n")
	require.Contains(t, text, "# attempts of a task [1..100]\n# INGEST_REDIS_MAX_ATTEMPTS=10\n")
	vars, err := parseEnv(strings.NewReader(text))
	require.NoError(t, err)
	require.Empty(t, vars, "a copy must change nothing")

	type differs struct {
		Queue string `envconfig:"INGEST_QUEUE" default:"kafka" allowed:"redis|kafka"`
	}
	err = WriteEnvExample(&out, Section{"a", sample{}}, Section{"b", differs{}})
	require.ErrorContains(t, err, "INGEST_QUEUE")
}

func TestEnvFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), ".env")
	require.NoError(t, os.WriteFile(file, []byte("\ufeff# comment\n\nexport T_A=1\nT_B = two words # tail\nT_C='a\\n$x'\nT_D=\"a\\n\\\"b\\\"\" # c\nT_E=http://h/#frag\nT_F=\nT_SET=file\n"), 0o600))
	t.Setenv("T_SET", "real")
	for _, n := range []string{"T_A", "T_B", "T_C", "T_D", "T_E", "T_F"} {
		t.Setenv(n, "") // so that the test's end takes away what the file sets
		require.NoError(t, os.Unsetenv(n))
	}
	require.NoError(t, LoadEnvFile(file))
	for name, want := range map[string]string{"T_A": "1", "T_B": "two words", "T_C": `a\n$x`, "T_D": "a\n\"b\"", "T_E": "http://h/#frag", "T_F": "", "T_SET": "real"} {
		require.Equal(t, want, os.Getenv(name), name)
	}
	require.Error(t, LoadEnvFile(file+".missing"))
	for in, want := range map[string]string{"novalue": "line 1: want NAME=value", "\n1A=x": "line 2", "A='x": "not closed", "A='x' y": "after the closing quote"} {
		_, err := parseEnv(strings.NewReader(in))
		require.ErrorContains(t, err, want)
	}
	_, err := parseEnv(strings.NewReader("A=\"" + canary))
	require.NotContains(t, err.Error(), canary)
}

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	got := UnknownVariables([]string{
		"INGEST_QUEU=" + canary, "INGEST_LEASE=5", "UPLOAD_FROBNICATION_OF_THINGS=1", "REDIS_URI=x", "MYSQL_DNS=x", "MYSQL_DSN_FILE=/x",
		"REDIS_PORT=tcp://10.0.0.1:6379", "REDIS_SERVICE_HOST=x", "CHROMA_PORT_8000_TCP_ADDR=x", "PATH=/bin", "HOME=/", "LOG_LEVEL=info",
		"HTTP_PROXY=x", "RABBITMQ_NODENAME=x", "WAIT=1", "UPLOAD_DIR=/x", "TERM=x",
		"TASK_STREAM_MAXLEN=" + canary, "TASK_STREAM_MAXLEN_FILE=/x", "RABBITMQ_URL=amqp://h", "TELEGRAM_BOT_TOKEN=" + canary, "TASK_STREAM_KEY=x",
		"TASK_STREAM_GROUP=x", "STREAM_WORKER_ROADS=x", "STREAM_WORKER_ROAD=x", "TELEGRAM_PROXY=x",
	}, sample{})
	require.Equal(t, []string{
		"INGEST_LEASE is not a setting: did you mean INGEST_LEASE_MS?",
		"INGEST_QUEU is not a setting: did you mean INGEST_QUEUE?",
		"MYSQL_DNS is not a setting: did you mean MYSQL_DSN?",
		"REDIS_URI is not a setting: did you mean REDIS_URL?",
		"STREAM_WORKER_ROAD is not a setting: did you mean STREAM_WORKER_ROADS?",
		"UPLOAD_FROBNICATION_OF_THINGS is not a setting (see --help-env)",
	}, got)
}
