package telemetry

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const canary = "c4nary-Pa55"

func TestRedactHidesSecrets(t *testing.T) {
	t.Parallel()
	_, slash := url.Parse("postgres://u:c4nary/c4nary-Pa55@h/db") //nolint:staticcheck // the error is what the test wants
	require.Error(t, slash)
	jwt := "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjNG5hcnkifQ.c4nary-Pa55signature"
	for name, tc := range map[string]struct{ in, want string }{
		"mysql dsn":        {"open app:c4nary-Pa55@tcp(127.0.0.1:3306)/ingest: refused", "open ***@tcp(127.0.0.1:3306)/ingest: refused"},
		"mysql dsn with @": {"app:c4n@ry-c4nary-Pa55@tcp(db)/x", "***@tcp(db)/x"},
		"postgres url":     {"dial postgres://app:c4nary-Pa55@db:5432/ingest?sslmode=disable: refused", "dial postgres://***@db:5432/ingest?sslmode=disable: refused"},
		"slash in it":      {"postgres://app:c4/c4nary-Pa55@db:5432/ingest", "postgres://***@db:5432/ingest"},
		"redis no user":    {"rediss://:c4nary-Pa55@r:6379/0", "rediss://***@r:6379/0"},
		"token as user":    {"https://c4nary-Pa55@example.org/x", "https://***@example.org/x"},
		"query token":      {"GET https://e.org/v1?model=a&access_token=c4nary-Pa55&b=2: 401", "GET https://e.org/v1?model=a&access_token=***&b=2: 401"},
		"query key":        {"https://e.org/v1?key=c4nary-Pa55", "https://e.org/v1?key=***"},
		"signed url":       {"https://s3/x?X-Amz-Signature=c4nary-Pa55&y=1", "https://s3/x?X-Amz-Signature=***&y=1"},
		"libpq":            {"host=db user=app password=c4nary-Pa55 dbname=x", "host=db user=app password=*** dbname=x"},
		"libpq quoted":     {"password='c4nary-Pa55 with space' dbname=x", "password=*** dbname=x"},
		"json":             {`{"apiKey":"c4nary-Pa55","n":1}`, `{"apiKey":***,"n":1}`},
		"json escaped":     {`{"client_secret": "c4nary\"-Pa55 c4nary-Pa55", "n":1}`, `{"client_secret": ***, "n":1}`},
		"header":           {"Authorization: Bearer c4nary-Pa55", "Authorization: ***"},
		"basic header":     {"authorization: Basic YzRuYXJ5LVBhNTU6c4nary-Pa55", "authorization: ***"},
		"go header map":    {`map[Authorization:[Bearer c4nary-Pa55]]`, `map[Authorization:[***]]`},
		"bearer alone":     {"sent bearer c4nary-Pa55 to it", "sent bearer *** to it"},
		"x-chroma-token":   {"x-chroma-token: c4nary-Pa55", "x-chroma-token: ***"},
		"our key":          {"no such key mw_live_c4nary0Pa55xyz123456", "no such key mw_live_***"},
		"openai key":       {"Incorrect API key provided: sk-c4nary-Pa55abcdef.", "Incorrect API key provided: ***."},
		"jwt":              {"token " + jwt + " expired", "token *** expired"},
		"telegram":         {"POST /bot123456789:AAc4nary-Pa55abcdefghijklmnopqrstu/getMe", "POST /bot***/getMe"},
		"pem":              {"-----BEGIN EC PRIVATE KEY-----\nc4nary-Pa55\n-----END EC PRIVATE KEY-----", "***"},
		"cut pem":          {"x -----BEGIN PRIVATE KEY-----\nc4nary-Pa55", "x ***"},
		"env":              {"EMBEDDING_API_KEY=c4nary-Pa55", "EMBEDDING_API_KEY=***"},
		"net/url error":    {slash.Error(), `parse "postgres://***@h/db": invalid port "***" after host`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Redact(tc.in)
			require.Equal(t, tc.want, got)
			require.NotContains(t, got, "c4nary")
			require.Equal(t, got, Redact(got), "twice is as once")
		})
	}
}

func TestRedactLeavesPlainTextAlone(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"",
		`embed batch 3/12: Post "http://127.0.0.1:65530/api/v2/tenants": dial tcp 127.0.0.1:65530: connect: connection refused`,
		"lease expired",
		"the model's limit is 8192 tokens: the text has 9001",
		"http://127.0.0.1:8000/files/a@b.txt",
		"open /data/upload/0192: no such file or directory",
		"bearer authentication required",
		"fence 12, attempt 3 of 10",
		"redis://127.0.0.1:6379/0",
		"user@example.org wrote it",
		"文档 解析 失败: 第3页",
	} {
		require.Equal(t, s, Redact(s))
	}
}

func TestRedactProperty(t *testing.T) {
	t.Parallel()
	// Whatever stands around it, a password in one of these places never comes through.
	around := rapid.StringMatching(`[ a-z0-9/:.?&=@"'()\n一]{0,30}`)
	places := []string{"mysql://u:%s@h/d", "u:%s@tcp(h:1)/d", "https://h/?token=%s", "password=%s", "Bearer %s", `{"secret":"%s"}`}
	rapid.Check(t, func(t *rapid.T) {
		text := around.Draw(t, "before") + " " + fmt.Sprintf(rapid.SampledFrom(places).Draw(t, "place"), canary) + " " + around.Draw(t, "after")
		got := Redact(text)
		require.NotContains(t, got, canary)
		require.Equal(t, got, Redact(got), "twice is as once")
	})
}

func FuzzRedact(f *testing.F) {
	f.Add("postgres://a:b@c/d", "x")
	f.Add("-----BEGIN PRIVATE KEY-----", "password=")
	f.Fuzz(func(t *testing.T, a, b string) {
		got := Redact(a + b)
		if len(got) > 4*len(a+b)+64 {
			t.Fatalf("%d bytes became %d", len(a+b), len(got))
		}
		if strings.Contains(Redact(a+" password="+canary+" "+b), "password="+canary) {
			t.Fatalf("canary comes through in %q %q", a, b)
		}
	})
}

func BenchmarkRedactPlainError(b *testing.B) {
	s := `embed batch 3/12: Post "http://127.0.0.1:65530/api/v2": dial tcp 127.0.0.1:65530: connect: connection refused`
	for b.Loop() {
		Redact(s)
	}
}
