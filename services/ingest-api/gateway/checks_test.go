package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/checks"
	"github.com/millweir/millweir/pkg/fsck/rules"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/console/chinese"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// checkPath is where checks are asked for.
const checkPath = "/internal/fsck"

func TestChecksOverHTTP(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		ask := func(body string) wire.CheckReport {
			w := s.send(s.secrets["operator"], http.MethodPost, checkPath, body)
			require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
			v := decode[wire.CheckReport](t, w)
			require.Equal(t, checkPath+"/"+v.CheckID, w.Header().Get("Location"))
			return v
		}
		get := func(id string) wire.CheckReport {
			w := s.get(s.secrets["watcher"], checkPath+"/"+id)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			return decode[wire.CheckReport](t, w)
		}
		for who, code := range map[string]string{"owner": web.CodeForbidden, "watcher": web.CodeScope, "lookout": web.CodeScope} {
			s.refused(s.send(s.secrets[who], http.MethodPost, checkPath, `{}`), http.StatusForbidden, code)
		}
		s.refused(s.get(s.secrets["owner"], checkPath), http.StatusForbidden, web.CodeForbidden)
		s.refused(s.get(s.secrets["lookout"], checkPath), http.StatusForbidden, web.CodeScope)
		for body, code := range map[string]string{
			`{"repair":true,"dryRun":false}`:                     web.CodeInvalidField,
			`{"repair":true,"dryRun":false,"reason":" \t "}`:     web.CodeInvalidField,
			`{"dryRun":true}`:                                    web.CodeInvalidField,
			`{"deep":"yes"}`:                                     web.CodeBadJSON,
			`{"rest":true}`:                                      web.CodeBadJSON,
			`{"reason":"` + strings.Repeat("x", 501) + `"}`:      web.CodeFieldTooLong,
			`{"repair":true,"dryRun":false,"reason":"a\u0000b"}`: web.CodeInvalidText,
			`{"repair":true,"dryRun":false,"reason":"` + strings.Repeat("\U0001F527", 501) + `"}`: web.CodeFieldTooLong,
		} {
			require.Equal(t, code, s.problem(s.send(s.secrets["operator"], http.MethodPost, checkPath, body)).Code, body)
		}
		require.Empty(t, decode[wire.List[wire.Check]](t, s.get(s.secrets["watcher"], checkPath)).Items, "nothing of that was a check")
		s.refused(s.get(s.secrets["watcher"], checkPath+"/none"), http.StatusNotFound, web.CodeCheckNotFound)
		s.refused(s.get(s.secrets["watcher"], checkPath+"/"+bodyID), http.StatusNotFound, web.CodeCheckNotFound)
		upload := s.accept(s.secrets["owner"], "a.txt", "no check").TaskID
		s.refused(s.get(s.secrets["watcher"], checkPath+"/"+upload), http.StatusNotFound, web.CodeCheckNotFound)

		// A repair is a dry run unless the request says otherwise.
		dry := ask(`{"repair":true}`)
		require.True(t, dry.DryRun)
		require.Equal(t, "root", dry.UserID)
		require.Equal(t, taskstate.StatusQueued, dry.Status)
		require.Nil(t, dry.Violations)
		require.Empty(t, dry.Rules)
		w := s.send(s.secrets["operator"], http.MethodPost, checkPath, `{"repair":true,"dryRun":true}`)
		require.Equal(t, dry.CheckID, decode[wire.CheckReport](t, w).CheckID, "the same request gets the same check")
		require.Equal(t, "true", w.Header().Get("Idempotency-Replayed"))
		p := s.refused(s.send(s.secrets["operator"], http.MethodPost, checkPath, `{"deep":true}`), http.StatusConflict, web.CodeCheckRunning)
		require.Contains(t, p.Message, dry.CheckID)

		// It is withdrawn as every task is, and the next one is another.
		w = s.send(s.secrets["operator"], http.MethodDelete, "/internal/tasks/"+dry.CheckID, "")
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		gone := get(dry.CheckID)
		require.Equal(t, taskstate.StatusCancelled, gone.Status)
		require.False(t, gone.EndedAt.Missing())
		real := ask(`{"repair":true,"dryRun":false,"reason":" the disk was full "}`)
		require.NotEqual(t, dry.CheckID, real.CheckID)
		require.False(t, real.DryRun)
		require.Equal(t, "the disk was full", real.Reason)
		require.Len(t, s.events("installation_check"), 1, "an answer with the same check is no new one")
		repairs := s.events("installation_repair")
		require.Len(t, repairs, 1)
		require.Equal(t, "the disk was full", repairs[0].Detail)

		// Newest first, a page at a time.
		page := decode[wire.List[wire.Check]](t, s.get(s.secrets["watcher"], checkPath+"?limit=1"))
		require.Equal(t, real.CheckID, page.Items[0].CheckID)
		require.True(t, page.HasMore)
		page = decode[wire.List[wire.Check]](t, s.get(s.secrets["watcher"], checkPath+"?limit=1&cursor="+string(page.NextCursor)))
		require.Equal(t, dry.CheckID, page.Items[0].CheckID)
		require.False(t, page.HasMore)
	})
}

// However many ask at once, one check is made.
func TestChecksAskedForAtOnceAreOne(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		const askers = 8
		var wg sync.WaitGroup
		ids, codes := make([]string, askers), make([]int, askers)
		for i := range askers {
			wg.Go(func() {
				w := s.send(s.secrets["operator"], http.MethodPost, checkPath, `{"history":true}`)
				var v wire.CheckReport
				_ = json.Unmarshal(w.Body.Bytes(), &v)
				ids[i], codes[i] = v.CheckID, w.Code
			})
		}
		wg.Wait()
		for i := range askers {
			require.Equal(t, http.StatusAccepted, codes[i])
			require.Equal(t, ids[0], ids[i])
		}
		require.Len(t, decode[wire.List[wire.Check]](t, s.get(s.secrets["operator"], checkPath)).Items, 1)
		require.Len(t, s.events("installation_check"), 1)
	})
}

// checked is the id of a check that has ended, with this text in whatever it says.
func (s *site) checked(hostile string) string {
	s.t.Helper()
	w := s.send(s.secrets["operator"], http.MethodPost, checkPath, mustJSON(s.t, wire.CheckRequest{Repair: true, History: true, Reason: hostile}))
	require.Equal(s.t, http.StatusAccepted, w.Code, w.Body.String())
	id := decode[wire.CheckReport](s.t, w).CheckID
	s.move(id, taskstate.StatusRunning)
	s.move(id, taskstate.StatusSucceeded)
	result := checks.Result{
		BeganAt: time.Now().UTC(), EndedAt: time.Now().UTC(), Violations: 7, Young: 1, Uncompared: 1, Shortened: true,
		Rules: []checks.Rule{
			{Rule: "I12", Sentence: hostile, Judged: 1, Violations: 7, Examples: []checks.Example{
				{About: hostile, Problem: hostile, History: hostile}, {About: id, Kind: "task", Problem: hostile}, {About: bodyID, Kind: "document"}, {About: hostile, Kind: "base"},
			}},
			{Rule: "I13", Sentence: "kept", Judged: 3, Examples: []checks.Example{}}, {Rule: "X1", Sentence: hostile, NotJudged: hostile, Examples: []checks.Example{}},
		},
		Repair: &checks.Repair{DryRun: true, Mends: []checks.Mend{{What: checks.MendRows, Count: 1, Items: []string{hostile}}, {What: hostile, Rule: hostile}}, Left: []string{hostile}, LeftAll: 1},
	}
	s.exec("UPDATE ingest_task_body SET result = ? WHERE id = ?", mustJSON(s.t, result), id)
	return id
}

// An operator checks and repairs by forms alone; a key that may only read sees the report and no form.
func TestConsoleChecksTheInstallation(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	root, watcher, ada, lookout := s.as(s.secrets["operator"]), s.as(s.secrets["watcher"]), s.as(s.secrets["owner"]), s.as(s.secrets["lookout"])
	page := root.page("/console/health")
	require.Contains(t, page, "The installation was not checked yet.")
	require.Contains(t, page, "Check now")
	page = watcher.page("/console/health")
	require.Contains(t, page, "The installation was not checked yet.")
	require.NotContains(t, page, "Check now")
	for _, b := range []*browser{ada, lookout} {
		require.NotContains(t, b.page("/console/health"), "Check of the installation")
	}
	require.Equal(t, http.StatusForbidden, ada.post("/console/health/checks", url.Values{"step": {"check"}}).Code)
	require.Equal(t, http.StatusForbidden, watcher.post("/console/health/checks", url.Values{"step": {"check"}}).Code)

	id := s.checked("the otter's words")
	require.Equal(t, http.StatusForbidden, ada.get("/console/health/checks/"+id).Code)
	page = root.page("/console/health/checks/" + id)
	for _, words := range []string{
		"7 violations were found.", "the otter&#39;s words", "/console/tasks/" + id, "/console/documents/" + bodyID, "What a repair would do", "1 × mend rows of documents",
		"All rules: 1 violated, 1 kept, 1 not judged", "not judged: the otter", "Reason (needed)", "dry run of a repair, with the log",
	} {
		require.Contains(t, page, words)
	}
	require.NotContains(t, watcher.page("/console/health/checks/"+id), "Reason (needed)")
	require.Contains(t, root.page("/console/health"), "7 violations were found.", "the last one is shown at once")

	// Without a reason nothing is repaired; with one the check is that of the dry run, in earnest.
	require.Equal(t, http.StatusUnprocessableEntity, root.post("/console/health/checks/"+id+"/repair", url.Values{}).Code)
	require.Equal(t, http.StatusForbidden, watcher.post("/console/health/checks/"+id+"/repair", url.Values{"reason": {"mend it"}}).Code)
	w := root.post("/console/health/checks/"+id+"/repair", url.Values{"reason": {"mend it"}})
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body.String())
	at := w.Header().Get("Location")
	page = root.page(at)
	for _, words := range []string{"It waits for a worker.", "repair, with the log", "mend it", "Withdraw the check", `data-live="poll"`} {
		require.Contains(t, page, words)
	}
	require.NotContains(t, root.page("/console/health"), "Check now", "while one has not ended there is no other")
	require.Equal(t, http.StatusConflict, root.post("/console/health/checks", url.Values{"step": {"check"}}).Code)
	w = root.post("/console/tasks/"+strings.TrimPrefix(at, "/console/health/checks/")+"/delete", url.Values{"back": {strings.TrimPrefix(at, "/console")}})
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body.String())
	require.Equal(t, at+"?done=delete", w.Header().Get("Location"))
	w = root.post("/console/health/checks", url.Values{"step": {"check"}, "deep": {"1"}})
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body.String())
	require.Contains(t, root.page(w.Header().Get("Location")), "check, with every vector")
}

// Every rule that a check judges has a sentence in Chinese, and nothing else has.
func TestRulesAreInChinese(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, rules.IDs(), slices.Sorted(maps.Keys(chinese.Rules)))
}

// literals are the texts of a package's sources that a call of one of the functions has at a place.
func literals(t *testing.T, folder string, places map[string]int, left ...string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.go")
	require.NoError(t, err)
	said := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || slices.Contains(left, filepath.Base(file)) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			at, known := places[f.Sel.Name]
			if !known || at >= len(call.Args) {
				return true
			}
			if text, ok := call.Args[at].(*ast.BasicLit); ok && text.Kind == token.STRING {
				why, err := strconv.Unquote(text.Value)
				require.NoError(t, err)
				said[why] = true
			}
			return true
		})
	}
	require.NotEmpty(t, said)
	return said
}

// Every violation that a check can find has words in Chinese, which say all that the English ones do, and the report shows them.
func TestViolationsAreInChinese(t *testing.T) {
	t.Parallel()
	zh := chinese.Problems
	// client.go, effects.go and moves.go judge logs that only `millweir fsck` is given, sample.go what a worker looks at by itself.
	for text := range literals(t, "../../../pkg/fsck", map[string]int{"bad": 2, "verdict": 3, "add": 1}, "client.go", "effects.go", "moves.go", "sample.go") {
		if text != "%s" { // what others have put together
			require.NotEmpty(t, zh[text], text)
		}
	}
	for text := range literals(t, "../../../pkg/taskstate/history", map[string]int{"Sprintf": 0}, "checker.go", "report.go") {
		require.NotEmpty(t, zh[text], text)
	}
	verb := regexp.MustCompile(`%[dsqvt]`)
	for english, its := range zh {
		var args []any
		for i, v := range verb.FindAllString(english, -1) {
			args = append(args, map[string]any{"%d": 100 + i, "%s": fmt.Sprint("x", i), "%q": fmt.Sprint("q", i), "%v": errors.New(fmt.Sprint("e", i)), "%t": true}[v])
		}
		said, known := chinese.Problem(fmt.Sprintf(english, args...))
		require.True(t, known, english)
		shown := make([]any, len(args))
		for i, v := range verb.FindAllString(english, -1) {
			shown[i] = fmt.Sprintf(v, args[i])
			require.Contains(t, said, shown[i], english)
		}
		require.Equal(t, fmt.Sprintf(its, shown...), said, english)
		require.NotContains(t, said, "%!", english)
	}
	_, known := chinese.Problem("something that nobody said")
	require.False(t, known)
	said, _ := chinese.Problem(`version a: visible vector b is not in the store`)
	require.Equal(t, "版本 a：可见向量 b 不在存储中", said)
	said, _ = chinese.Problem("transition 3: its fence is 7, must be 1")
	require.Equal(t, "第 3 次变更：其栅栏号为 7，应为 1", said)

	site := newSite(t)
	root := site.as(site.secrets["operator"])
	id := site.checked("it had a visible version, was not deleted, and has none")
	require.Contains(t, root.page("/console/health/checks/"+id), "it had a visible version, was not deleted, and has none")
	root.headers["Accept-Language"] = "zh"
	require.Contains(t, root.page("/console/health/checks/"+id), "它曾有可见版本，未被删除，现在却没有")
}

// Every reason that fsck has for not judging a rule has words in Chinese, nothing else has, and the report shows them.
func TestReasonsForNotJudgingAreInChinese(t *testing.T) {
	t.Parallel()
	said := literals(t, "../../../pkg/fsck", map[string]int{"notJudged": 0, "NotJudged": 1})
	require.Equal(t, slices.Sorted(maps.Keys(said)), slices.Sorted(maps.Keys(chinese.NotJudged)))

	s := newSite(t)
	root := s.as(s.secrets["operator"])
	id := s.checked("only with the history")
	require.Contains(t, root.page("/console/health/checks/"+id), "not judged: only with the history")
	root.headers["Accept-Language"] = "zh"
	require.Contains(t, root.page("/console/health/checks/"+id), "仅在同时检查任务日志时判断")
}
