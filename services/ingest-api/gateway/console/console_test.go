package console

import (
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/console/chinese"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// used finds the texts that templates and code ask for.
func used(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	add := func(text string, forms ...string) {
		for _, form := range forms {
			for _, found := range regexp.MustCompile(form).FindAllStringSubmatch(text, -1) {
				plain, err := strconv.Unquote(found[1])
				require.NoError(t, err, found[1])
				out[plain] = true
			}
		}
	}
	const literal = `("(?:[^"\\]|\\.)*")`
	files, err := fs.Glob(templateFiles, "templates/*.html")
	require.NoError(t, err)
	for _, file := range files {
		text, err := fs.ReadFile(templateFiles, file)
		require.NoError(t, err)
		add(string(text), `[. ($]T `+literal)
	}
	for _, file := range sources(t) {
		add(file, `\.T\(`+literal)
	}
	for _, m := range marks {
		out[m.word] = true
	}
	for _, text := range doneTexts {
		out[text] = true
	}
	for _, text := range mendTexts {
		out[text] = true
	}
	explain, err := os.ReadFile("../../../../pkg/tasks/explain.go") // its sentences are said here
	require.NoError(t, err)
	add(string(explain), `(?:say|sentence)\(`+literal)
	return out
}

// Both languages have every text, with the same values in the same order, and no text is left over.
func TestTextsAreInBothLanguages(t *testing.T) {
	t.Parallel()
	verb := regexp.MustCompile(`%[a-z%]`)
	wanted := used(t)
	require.Greater(t, len(wanted), 200, "the forms above find no texts")
	for text := range wanted {
		zh, ok := chinese.Texts[text]
		require.True(t, ok, "%q has no Chinese text", text)
		require.Equal(t, verb.FindAllString(text, -1), verb.FindAllString(zh, -1), "%q", text)
		require.NotEmpty(t, zh)
	}
	for text := range chinese.Texts {
		require.True(t, wanted[text], "%q is used nowhere", text)
	}
}

// Every error code of the API has Chinese words, and no words are left over.
func TestErrorCodesAreInChinese(t *testing.T) {
	t.Parallel()
	for code := range web.Kinds {
		require.NotEmpty(t, chinese.Codes[code].Message, code)
		require.NotEmpty(t, chinese.Codes[code].Remedy, code)
	}
	for code := range chinese.Codes {
		require.Contains(t, web.Kinds, code, "the API has no such code")
	}
	zh, en := page{Look: look{Lang: "zh"}}, page{Look: look{Lang: "en"}}
	require.Equal(t, "文件无法读取。", zh.CodeText("CORRUPT"))
	require.Empty(t, en.CodeText("CORRUPT"))
	require.Empty(t, zh.CodeText("NO_SUCH_CODE"))
}

// All files for browsers are small, and no page names another one.
func TestAssets(t *testing.T) {
	t.Parallel()
	h, err := New(Config{Now: time.Now})
	require.NoError(t, err)
	sum := 0
	for name, a := range h.assets {
		sum += len(a.body)
		require.NotEmpty(t, a.kind, name)
		require.NotRegexp(t, `(?i)https?://(?:[^w]|w[^w])`, string(a.body), "%s names another host", name)
	}
	require.LessOrEqual(t, sum, 100<<10)
}

func TestHitsAreCutAtTheWordsFound(t *testing.T) {
	t.Parallel()
	join := func(pieces []piece) (out string) {
		for _, p := range pieces {
			if p.Found {
				out += "[" + p.Text + "]"
			} else {
				out += p.Text
			}
		}
		return out
	}
	require.Equal(t, "川[獺]が[泳ぐ]。", join(cut("川獺が泳ぐ。", [][2]int{{3, 5}, {1, 2}})))
	require.Equal(t, "ab", join(cut("ab", [][2]int{{1, 5}, {-1, 1}, {2, 2}})), "what does not fit is left out")
	long := strings.Repeat("獺", 1000) + "weir" + strings.Repeat("x", 1000)
	part, ranges := excerpt(long, [][2]int{{1000, 1004}})
	require.Contains(t, join(cut(part, ranges)), "獺[weir]x")
	require.Equal(t, excerptWhole+2, len([]rune(part)))
}

func TestNextIsAPageOfOurs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/tasks?status=DEAD&q=a%20b": "/tasks?status=DEAD&q=a%20b", "/": "/", "": "/", "tasks": "/", "//evil.example": "/", `/\evil`: "/", "/a\nb": "/",
		"https://evil.example/": "/", "/a/../../api": "/", "/%2e%2e/api": "/", "/\x00": "/",
	} {
		require.Equal(t, want, next(text), "%q", text)
	}
}

// What is copied is quoted for a shell, and asks for the same.
func TestASearchForAShell(t *testing.T) {
	t.Parallel()
	in := wire.SearchRequest{Query: "it's $(reboot)", KnowledgeBase: "a b", Mode: "text", TopK: new(7), MediaTypes: []string{"text/plain"}, CreatedAfter: "2026-01-01T00:00:00Z"}
	require.Equal(t, `millweir search 'it'\''s $(reboot)' --kb 'a b' --mode 'text' --top 7 --type 'text/plain' --created-after '2026-01-01T00:00:00Z'`, cli(in))
	require.Equal(t, `curl -H 'Content-Type: application/json' -d '{"query":"it'\''s $(reboot)"}' 'http://127.0.0.1:8081/api/knowledge/search'`,
		curl("http://127.0.0.1:8081", true, wire.SearchRequest{Query: "it's $(reboot)"}))
	require.Contains(t, curl("https://mill.example.org", false, in), `-H "Authorization: Bearer $MILLWEIR_API_KEY"`)
	require.Equal(t, "import json, urllib.request\nrequest = urllib.request.Request(\"http://127.0.0.1:8081/api/knowledge/search\", "+
		`"{\"query\":\"a \\\"b\\\" \\u003c\"}".encode(), {"Content-Type": "application/json"})`+"\nprint(json.load(urllib.request.urlopen(request))[\"hits\"])\n",
		python("http://127.0.0.1:8081", true, wire.SearchRequest{Query: `a "b" <`}))
	require.Contains(t, python("https://mill.example.org", false, in), `os.environ["MILLWEIR_API_KEY"]`)
}
