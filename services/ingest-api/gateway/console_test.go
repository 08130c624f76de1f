package gateway

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// consoleCSP is the policy of issue 21, word by word.
const consoleCSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// browser is a person's browser without a script: it keeps cookies.
type browser struct {
	*site
	cookies map[string]*http.Cookie
	headers map[string]string
}

func (s *site) browser() *browser {
	return &browser{site: s, cookies: map[string]*http.Cookie{}, headers: map[string]string{}}
}

// as is a browser in which a key has logged in.
func (s *site) as(secret string) *browser {
	s.t.Helper()
	b := s.browser()
	w := b.post("/console/login", url.Values{"key": {secret}})
	require.Equal(s.t, http.StatusSeeOther, w.Code, w.Body.String())
	return b
}

func (b *browser) send(r *http.Request) *httptest.ResponseRecorder {
	b.t.Helper()
	r.Host = "127.0.0.1:8081"
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	for name, value := range b.headers {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	b.g.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if b.cookies[c.Name] = c; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	require.NotEqual(b.t, http.StatusInternalServerError, w.Code, "%s %s: %s %s", r.Method, r.URL, w.Body, b.log)
	if strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		require.Equal(b.t, consoleCSP, w.Header().Get("Content-Security-Policy"))
		require.Equal(b.t, "no-store", w.Header().Get("Cache-Control"))
		require.NotContains(b.t, w.Body.String(), "ZgotmplZ", "%s", r.URL)
		require.NotContains(b.t, w.Body.String(), "%!", "%s", r.URL)
	}
	return w
}

func (b *browser) get(path string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.send(httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, path, nil))
}

func (b *browser) post(path string, form url.Values) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.send(r)
}

// page gets a page that has to be there.
func (b *browser) page(path string) string {
	b.t.Helper()
	w := b.get(path)
	require.Equal(b.t, http.StatusOK, w.Code, "%s: %s", path, w.Body.String())
	return w.Body.String()
}

// fill gives every screen something to show, with this text wherever a person or a program may write one. It returns the addresses
// of all screens: those of users, and those of operators.
func (s *site) fill(hostile string) (user, operator []string) {
	s.t.Helper()
	owner := s.secrets["owner"]
	name := strings.NewReplacer("\x00", "", "\n", " ", "\r", "").Replace(hostile)
	name = name[:min(len(name), 200)]
	make := func(to taskstate.Status) wire.AcceptedTask {
		w := s.upload(owner, asyncPath, nil, part{"title", "", name}, part{"metadata", "", `{"note":"<i>x</i>"}`}, file("a"+strings.ReplaceAll(name, "/", "_")+".txt", name+string(to)))
		require.Equal(s.t, http.StatusAccepted, w.Code, w.Body.String())
		return decode[wire.AcceptedTask](s.t, w)
	}
	var last wire.AcceptedTask
	for _, to := range []taskstate.Status{taskstate.StatusSucceeded, taskstate.StatusRetrying, taskstate.StatusDead} {
		last = make(to)
		s.move(last.TaskID, taskstate.StatusRunning)
		s.move(last.TaskID, to)
	}
	held := make(taskstate.StatusSuspended)
	w := s.bench.send(s.secrets["operator"], http.MethodPost, "/internal/tasks/"+held.TaskID+"/suspend", (mustJSON(s.t, wire.Reason{Reason: name})))
	require.Equal(s.t, http.StatusOK, w.Code, w.Body.String())
	document := string(last.DocumentID)
	base := string(last.KnowledgeBaseID)
	_, err := s.mq.CreateTopic(s.t.Context(), streammq.Topic{Name: "orders", Partitions: 2})
	require.NoError(s.t, err)
	user = []string{
		"/console", "/console/", "/console/tasks", "/console/tasks?status=DEAD", "/console/tasks/" + last.TaskID, "/console/tasks/" + held.TaskID,
		"/console/tasks?filter=" + url.QueryEscape("status:DEAD error~"+strconv.Quote(name)), "/console/failures", "/console/bulk", "/console/bulk?action=retry&filter=status:DEAD",
		"/console/documents", "/console/documents/" + document, "/console/bases", "/console/bases/" + base,
		"/console/upload", "/console/upload?task=" + last.TaskID, "/console/search", "/console/search?q=otter", "/console/health",
		"/console/tasks?q=" + url.QueryEscape(name), "/console/search?q=" + url.QueryEscape(name),
		"/console/preview", "/console/preview?document=" + document,
	}
	check := s.checked(name)
	operator = []string{
		"/console/health/checks/" + check, "/console/suspended", "/console/deadletters", "/console/queues", "/console/queues/orders", "/console/keys", "/console/audit",
	}
	return user, operator
}

// said is an application in which one text is everywhere that a reader of files would write.
type said struct {
	ingest.Service
	text string
}

func (a said) Document(ctx context.Context, c ingest.Caller, id string) (ingest.Document, error) {
	d, err := a.Service.Document(ctx, c, id)
	d.VisibleVersion = 1
	return d, err
}

// task is a task that failed with these words, when it failed.
func (a said) task(t taskstate.Task) taskstate.Task {
	if t.LastError != "" {
		t.LastError, t.ErrorCode, t.ErrorMessage, t.LeaseOwner = a.text, "CORRUPT", a.text, a.text
	}
	return t
}

func (a said) Task(ctx context.Context, c ingest.Caller, id string) (taskstate.Task, error) {
	t, err := a.Service.Task(ctx, c, id)
	return a.task(t), err
}

func (a said) Tasks(ctx context.Context, c ingest.Caller, q taskstate.Query) (taskstate.Page, error) {
	found, err := a.Service.Tasks(ctx, c, q)
	for i := range found.Tasks {
		found.Tasks[i] = a.task(found.Tasks[i])
	}
	return found, err
}

func (a said) Transitions(ctx context.Context, c ingest.Caller, id string, after int64, limit int) ([]taskstate.Transition, error) {
	log, err := a.Service.Transitions(ctx, c, id, after, limit)
	for i := range log {
		log[i].Message = a.text
	}
	return log, err
}

func (a said) Explain(ctx context.Context, c ingest.Caller, id string) (ingest.Explanation, error) {
	e, err := a.Service.Explain(ctx, c, id)
	said := tasks.Sentence{Template: "%s", Args: []string{a.text}}
	e.Task, e.Sentences, e.Holder, e.Delivery, e.Next = a.task(e.Task), []tasks.Sentence{said}, a.text, a.text, said
	return e, err
}

func (a said) Segments(context.Context, ingest.Caller, string, int, int) ([]ingest.Segment, error) {
	return []ingest.Segment{{Text: a.text, HeadingPath: []string{a.text}, Page: 3}}, nil
}

func (a said) Search(_ context.Context, _ ingest.Caller, r ingest.SearchRequest) (ingest.SearchResult, error) {
	hit := ingest.SearchHit{
		DocumentID: "0190a6e0-0000-7000-8000-000000000000", Title: a.text, FileName: a.text, Text: a.text, HeadingPath: []string{a.text}, Context: a.text,
		TextScore:  new(0.5),
		Highlights: [][2]int{{1, 3}},
	}
	return ingest.SearchResult{Hits: []ingest.SearchHit{hit}, Mode: ingest.SearchText, Suggestion: a.text}, nil
}

// newConsoleSite is a site whose application says this text where a document does.
func newConsoleSite(t *testing.T, text string, change ...func(*Config, *Deps)) *site {
	return newSite(t, append([]func(*Config, *Deps){func(_ *Config, d *Deps) { d.Service = said{Service: d.Service, text: text} }}, change...)...)
}

// tags are the beginnings of elements and attributes that a page has, without what stands between them.
func tags(page string) (out []string) {
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return out
		case html.StartTagToken, html.SelfClosingTagToken:
			t := z.Token()
			for _, a := range t.Attr {
				out = append(out, t.Data+" "+a.Key)
			}
			out = append(out, t.Data)
		case html.TextToken, html.EndTagToken, html.CommentToken, html.DoctypeToken:
		}
	}
}

// What people, files and programs write is text on every screen: no element and no attribute comes of it (A27).
func TestConsoleShowsHostileTextAsText(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"script":    `<script>alert(1)</script>`,
		"attribute": `"><img src=x onerror=alert(1)>`,
		"quote":     `' onfocus=alert(1) autofocus x='`,
		"template":  `{{.Who}} ${7*7} <template><style>*{display:none}</style></template>`,
		"link":      `javascript:alert(1)//`,
		"bidi":      "invoice\u202efdp.exe\u202c <b>",
		"null":      "a\x00b<i>",
		"long":      strings.Repeat("<b>x", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newConsoleSite(t, text)
			user, operator := s.fill(text)
			b := s.as(s.secrets["operator"])
			allowed := []string{"a", "abbr", "bdi", "body", "button", "code", "datalist", "dd", "details", "dialog", "div", "dl", "dt", "fieldset", "footer", "form", "h1", "h2", "h3", "head", "header", "html",
				"input", "kbd", "label", "legend", "li", "line", "link", "main", "mark", "meta", "nav", "ol", "option", "p", "pre", "progress", "rect", "script", "section",
				"select", "span", "strong", "summary", "svg", "table", "tbody", "td", "th", "thead", "time", "title", "tr", "ul"}
			shown := false
			for _, path := range append(user, operator...) {
				page := b.page(path)
				scripts := 0
				for _, tag := range tags(page) {
					element, attribute, _ := strings.Cut(tag, " ")
					require.Contains(t, allowed, element, "%s", path)
					require.False(t, strings.HasPrefix(attribute, "on"), "%s: %s", path, tag)
					require.NotEqual(t, "style", attribute, "%s: %s", path, tag)
					if tag == "script" {
						scripts++
					}
				}
				require.Equal(t, 1, scripts, "%s", path)
				require.NotContains(t, page, `href="javascript`, "%s", path)
				require.NotContains(t, page, "\x00", "%s", path)
				shown = shown || strings.Contains(html.UnescapeString(page), strings.ReplaceAll(text, "\x00", "\ufffd")[:5])
			}
			require.True(t, shown, "the text is on no screen, so nothing was tried")
		})
	}
}

// An English and a Chinese screen have every text of the same table, and each screen is told which it is.
func TestConsoleSpeaksTwoLanguages(t *testing.T) {
	t.Parallel()
	s := newConsoleSite(t, "otter")
	user, operator := s.fill("otter")
	b := s.as(s.secrets["operator"])
	b.headers["Accept-Language"] = "de, zh-TW;q=0.9, en;q=0.8"
	for _, path := range append(user, operator...) {
		page := b.page(path)
		require.Contains(t, page, `<html lang="zh-Hans"`, "%s", path)
		require.Contains(t, page, "首页", "%s", path)
	}
	w := b.post("/console/tasks/0190a6e0-0000-7000-8000-000000000000/retry", nil) // the code's words, and the API's as their detail
	require.Contains(t, w.Body.String(), "没有这个任务。")
	require.Contains(t, w.Body.String(), "There is no such task.")
	require.Contains(t, b.page(user[4]), "文件无法读取。")
	b.headers["Accept-Language"] = "en, zh"
	require.Contains(t, b.page("/console/tasks"), `<html lang="en"`)
	w = b.post("/console/look", url.Values{"set": {"zh"}, "back": {"/tasks?status=DEAD"}})
	require.Equal(t, "/console/tasks?status=DEAD", w.Header().Get("Location"))
	require.Contains(t, b.page("/console/tasks"), `<html lang="zh-Hans"`)
	b.post("/console/look", url.Values{"set": {"dark"}})
	b.post("/console/look", url.Values{"set": {"utc"}})
	page := b.page("/console/tasks")
	require.Contains(t, page, `<html lang="zh-Hans" data-theme="dark"`)
	require.Regexp(t, `<time [^>]*>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</time>`, page)
}

// A session is made of a key, kept in a cookie that no script reads, and is good for the console alone.
func TestConsoleSession(t *testing.T) {
	t.Parallel()
	s := newConsoleSite(t, "otter", func(c *Config, _ *Deps) { c.TrustedProxies = []string{"192.0.2.1"} })
	b := s.browser()
	w := b.get("/console/tasks?status=DEAD")
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/console/login?next=%2Ftasks%3Fstatus%3DDEAD", w.Header().Get("Location"))

	w = b.post("/console/login", url.Values{"key": {"mw_live_x"}, "next": {"/tasks?status=DEAD"}})
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Contains(t, w.Body.String(), `role="alert"`)
	require.Contains(t, w.Body.String(), `value="/tasks?status=DEAD"`)
	require.Empty(t, b.cookies)

	w = b.post("/console/login", url.Values{"key": {" " + s.secrets["owner"] + " "}, "next": {"/tasks?status=DEAD"}})
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/console/tasks?status=DEAD", w.Header().Get("Location"))
	cookie := b.cookies["millweir-console"]
	require.NotNil(t, cookie)
	require.True(t, cookie.HttpOnly)
	require.False(t, cookie.Secure)
	require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	require.Equal(t, "/console", cookie.Path)
	require.NotContains(t, s.secrets, cookie.Value)
	require.Contains(t, b.page("/console/tasks"), ">ada<")

	// Neither the cookie nor its value is a credential of the API, and no key is one of the console.
	for _, r := range []*http.Request{
		s.request(nobody, http.MethodGet, "/api/knowledge/tasks", nil, "Cookie", "millweir-console="+cookie.Value),
		s.request(cookie.Value, http.MethodGet, "/api/knowledge/tasks", nil),
	} {
		s.refused(s.do(r), http.StatusUnauthorized, web.CodeUnauthenticated)
	}
	stranger := s.browser()
	stranger.cookies["millweir-console"] = &http.Cookie{Name: "millweir-console", Value: s.secrets["owner"]}
	require.Equal(t, http.StatusSeeOther, stranger.get("/console/tasks").Code)

	// Behind a proxy that speaks TLS it is bound to the host. Others' words on that are not believed.
	for _, c := range []struct{ from, name string }{{"192.0.2.1:9", "__Host-millweir"}, {"192.0.2.7:9", "millweir-console"}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/console/login", strings.NewReader("key="+s.secrets["owner"]))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("X-Forwarded-Prefix", "/docs/mill")
		r.RemoteAddr = c.from
		w := httptest.NewRecorder()
		s.g.ServeHTTP(w, r)
		require.Equal(t, http.StatusSeeOther, w.Code)
		cookies := w.Result().Cookies()
		require.Len(t, cookies, 1)
		require.Equal(t, c.name, cookies[0].Name)
		if c.name == "__Host-millweir" {
			require.True(t, cookies[0].Secure)
			require.Equal(t, "/", cookies[0].Path)
			require.Empty(t, cookies[0].Domain)
			require.Equal(t, "/docs/mill/console/", w.Header().Get("Location"))
		}
	}

	// Log-out ends it, also for who kept the cookie.
	kept := s.browser()
	kept.cookies["millweir-console"] = cookie
	w = b.post("/console/logout", nil)
	require.Equal(t, "/console/login", w.Header().Get("Location"))
	require.Empty(t, b.cookies)
	w = kept.get("/console/documents?q=a")
	require.Equal(t, "/console/login?ended=1&next=%2Fdocuments%3Fq%3Da", w.Header().Get("Location"))
	require.Contains(t, kept.page(w.Header().Get("Location")), "Your session has ended. Log in again")
}

// A session that has ended is told, on the page that a form leads to as well; nothing is shown as missing.
func TestConsoleSessionEndsWithItsKey(t *testing.T) {
	t.Parallel()
	s := newConsoleSite(t, "otter")
	b := s.as(s.secrets["owner"])
	s.exec("UPDATE api_key SET expires_at = created_at WHERE parent_id IS NOT NULL")
	w := b.post("/console/tasks/0190a6e0-0000-7000-8000-000000000000/retry", nil)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/console/login?ended=1", w.Header().Get("Location"))
	require.Empty(t, s.trails(audit.LoginFailed), "an ended session is no guess")
}

// trails are the events of an action.
func (s *site) trails(action audit.Action) []audit.Event {
	s.t.Helper()
	events, err := s.trail.List(s.t.Context(), audit.Query{Action: action, Limit: 10})
	require.NoError(s.t, err)
	return events
}

// Log-ins are limited like the API's, and a random cookie is a guess.
func TestConsoleLoginsAreLimited(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(b *browser) *httptest.ResponseRecorder{
		"key": func(b *browser) *httptest.ResponseRecorder {
			return b.post("/console/login", url.Values{"key": {auth.NewSecret()}})
		},
		"cookie": func(b *browser) *httptest.ResponseRecorder {
			b.cookies["millweir-console"] = &http.Cookie{Name: "millweir-console", Value: auth.NewSecret()}
			return b.get("/console/tasks")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newConsoleSite(t, "otter", func(c *Config, _ *Deps) { c.AuthFailLimit = 2 })
			b := s.browser()
			require.NotEqual(t, http.StatusTooManyRequests, try(b).Code)
			require.NotEqual(t, http.StatusTooManyRequests, try(b).Code)
			require.Equal(t, http.StatusTooManyRequests, try(b).Code)
			s.as(s.secrets["owner"]).page("/console/tasks") // nobody is locked out by a neighbour
		})
	}
}

// Another site's page can send no form (A32).
func TestConsoleRefusesOtherSites(t *testing.T) {
	t.Parallel()
	s := newConsoleSite(t, "otter")
	b := s.as(s.secrets["operator"])
	for _, path := range []string{"/console/login", "/console/logout", "/console/look", "/console/upload", "/console/tasks/x/retry", "/console/keys"} {
		for _, header := range []struct{ name, value string }{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("key=x"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set(header.name, header.value)
			w := b.send(r)
			require.Equal(t, http.StatusForbidden, w.Code, "%s %v", path, header)
			require.Equal(t, web.CodeCrossOrigin, s.problem(w).Code)
		}
	}
}

// bookish is an application that counts how often one document is read.
type bookish struct {
	ingest.Service
	reads *atomic.Int64
}

func (a bookish) Document(ctx context.Context, c ingest.Caller, id string) (ingest.Document, error) {
	a.reads.Add(1)
	return a.Service.Document(ctx, c, id)
}

// A list of tasks says of each which file it is and in which base, and reads no document for that.
func TestConsoleListsTasksWithoutReadingDocuments(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	s := newSite(t, func(_ *Config, d *Deps) { d.Service = bookish{d.Service, &reads} })
	s.fill("otter")
	list := decode[wire.List[wire.Task]](t, s.bench.send(s.secrets["owner"], http.MethodGet, "/api/knowledge/tasks", ""))
	files := map[wire.NullText]bool{}
	for _, task := range list.Items {
		files[task.FileName] = true
		require.Equal(t, wire.NullText("default"), task.KnowledgeBase)
	}
	require.Equal(t, map[wire.NullText]bool{"aotter.txt": true, "hello.txt": true}, files)
	b := s.as(s.secrets["operator"])
	reads.Store(0)
	for _, path := range []string{"/console/", "/console/tasks", "/console/suspended", "/console/bulk?action=retry&filter=status:DEAD"} {
		require.Contains(t, b.page(path), "aotter.txt", "%s", path)
		require.Zero(t, reads.Load(), "%s", path)
	}
}

// A form that nobody needs so large, or that is none, is refused before a key is looked at.
func TestConsoleRefusesStrangeForms(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.browser()
	require.Equal(t, http.StatusRequestEntityTooLarge, b.post("/console/login", url.Values{"key": {strings.Repeat("x", 70_000)}}).Code)
	for body, want := range map[string]struct {
		kind string
		code int
	}{"key=%zz": {"application/x-www-form-urlencoded", http.StatusBadRequest}, `{"key":"x"}`: {"application/json", http.StatusUnsupportedMediaType}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/console/login", strings.NewReader(body))
		r.Header.Set("Content-Type", want.kind)
		require.Equal(t, want.code, b.send(r).Code, "%s", body)
	}
	require.Empty(t, s.trails(audit.LoginFailed))
}

// forms are the addresses that a page's forms change something at.
func forms(page string) (out []string) {
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return out
		case html.StartTagToken:
			t := z.Token()
			form := map[string]string{}
			for _, a := range t.Attr {
				form[a.Key] = a.Val
			}
			if t.Data == "form" && form["method"] == "post" && !strings.HasSuffix(form["action"], "/look") && !strings.HasSuffix(form["action"], "/logout") {
				out = append(out, form["action"])
			}
		case html.TextToken, html.EndTagToken, html.SelfClosingTagToken, html.CommentToken, html.DoctypeToken:
		}
	}
}

// Who may only look sees every screen of the role and no form that changes anything; who is no operator sees no operators' screen.
func TestConsoleShowsWhatTheCallerMayDo(t *testing.T) {
	t.Parallel()
	s := newConsoleSite(t, "otter")
	user, operator := s.fill("otter")
	for _, c := range []struct {
		who              string
		operates, writes bool
	}{{"owner", false, true}, {"reader", false, false}, {"operator", true, true}, {"watcher", true, false}} {
		b := s.as(s.secrets[c.who])
		found := 0
		for _, path := range user {
			page := b.page(path)
			found += len(forms(page))
			require.Equal(t, c.operates, strings.Contains(page, `href="/console/audit"`), "%s %s", c.who, path)
		}
		for _, path := range operator {
			w := b.get(path)
			if !c.operates {
				require.Equal(t, http.StatusForbidden, w.Code, "%s %s", c.who, path)
				continue
			}
			require.Equal(t, http.StatusOK, w.Code, "%s %s", c.who, path)
			found += len(forms(w.Body.String()))
		}
		require.Equal(t, c.writes, found > 0, "%s: %d forms", c.who, found)
	}
	// The API judges what is sent past the pages.
	b := s.as(s.secrets["reader"])
	task := strings.TrimPrefix(user[4], "/console")
	require.Equal(t, http.StatusForbidden, b.post("/console"+task+"/retry", nil).Code)
	require.Equal(t, http.StatusForbidden, s.as(s.secrets["owner"]).post("/console"+task+"/delete", nil).Code)
	require.Equal(t, http.StatusNotFound, s.as(s.secrets["other"]).post("/console"+task+"/retry", nil).Code)
	require.Equal(t, http.StatusNotFound, s.as(s.secrets["other"]).get("/console"+task).Code)
}

// From the upload to the retry by forms alone; each leads back to where it was, and says what was done.
func TestConsoleWithoutScript(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(s.secrets["owner"])
	send := func(parts ...part) *httptest.ResponseRecorder {
		body, kind := form(t, parts...)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/console/upload", body)
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		return b.send(r)
	}
	w := send(part{"knowledgeBase", "", ""}, file("one.txt", "an otter"))
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body.String())
	task := w.Header().Get("Location")
	require.Regexp(t, `^/console/tasks/[0-9a-f-]{36}$`, task)
	require.Contains(t, b.page(task), "one.txt")

	w = send(file("two.txt", "2"), file("three.txt", "3"))
	require.Regexp(t, `^/console/upload\?task=[0-9a-f-]{36}&task=`, w.Header().Get("Location"))
	require.Contains(t, b.page(w.Header().Get("Location")), "three.txt")
	w = send(file("four.txt", "4"), file("empty.txt", ""))
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "four.txt")
	require.Contains(t, w.Body.String(), "EMPTY")

	id := strings.TrimPrefix(task, "/console/tasks/")
	s.move(id, taskstate.StatusRunning)
	s.move(id, taskstate.StatusDead)
	require.Contains(t, b.page("/console/tasks?status=DEAD"), "one.txt")
	require.Contains(t, forms(b.page(task)), task+"/retry")
	w = b.post(task+"/retry", url.Values{"back": {"/tasks?status=DEAD"}})
	require.Equal(t, "/console/tasks?done=retry&status=DEAD", w.Header().Get("Location"))
	require.Contains(t, b.page(w.Header().Get("Location")), "The task is queued again.")
	require.Contains(t, b.page(task), "queued")

	w = b.post(task+"/retry", nil) // it waits already: the API's words and remedy are shown
	require.Equal(t, http.StatusConflict, w.Code)
	require.Contains(t, w.Body.String(), "What to do")

	w = b.post("/console/selected", url.Values{"task": {id, "0190a6e0-0000-7000-8000-000000000000"}, "step": {"cancel"}, "back": {"/tasks"}})
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, b.page(task), "cancelled")
	w = b.post("/console/selected", url.Values{"task": {id, id}, "step": {"cancel"}, "back": {"//evil.example/"}})
	require.Equal(t, "/console/?of=2&took=0", w.Header().Get("Location"))
}

// The columns of the list of tasks stand in its address, and its other links keep them.
func TestConsoleKeepsItsColumns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.fill("otter")
	b := s.as(s.secrets["owner"])
	heads := func(page string) (out []string) {
		for _, th := range regexp.MustCompile(`<th[^>]*>([^<]*)</th>`).FindAllStringSubmatch(page, -1) {
			if th[1] != "" {
				out = append(out, th[1])
			}
		}
		return out
	}
	require.Equal(t, []string{"Document", "Status", "Stage", "Attempt", "Why", "Changed"}, heads(b.page("/console/tasks")))
	page := b.page("/console/tasks?col=base&col=created&col=nothing&limit=1")
	require.Equal(t, []string{"Document", "Status", "Base", "Created"}, heads(page))
	require.Contains(t, page, "<bdi>default</bdi>")
	links := 0
	for _, link := range regexp.MustCompile(`href="(/console/tasks\?[^"]*(?:cursor|status)=[^"]*)"`).FindAllStringSubmatch(page, -1) {
		require.Contains(t, html.UnescapeString(link[1]), "col=base&col=created", "%s", link[1])
		links++
	}
	require.Greater(t, links, 7, "statuses, and the next page")
}

// shelves is an application whose bases have a text that both have, and one of their own; there is no base named gone.
type shelves struct{ ingest.Service }

func (a shelves) Search(_ context.Context, _ ingest.Caller, r ingest.SearchRequest) (ingest.SearchResult, error) {
	if r.Base == "gone" {
		return ingest.SearchResult{}, ingest.ErrBaseNotFound
	}
	hit := ingest.SearchHit{DocumentID: "0190a6e0-0000-7000-8000-000000000000", Title: "t", FileName: "f"}
	own, both := hit, hit
	own.Text, both.Text = "only in "+r.Base, "in both"
	if r.Base == "old" {
		return ingest.SearchResult{Hits: []ingest.SearchHit{own, both}, Mode: ingest.SearchText}, nil
	}
	return ingest.SearchResult{Hits: []ingest.SearchHit{both, own}, Mode: ingest.SearchHybrid}, nil
}

// Two bases are searched beside each other, and each hit says where the other has it. A search that is refused can be mended. Who may do
// nothing but search can search.
func TestConsoleComparesTwoBases(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(_ *Config, d *Deps) { d.Service = shelves{d.Service} })
	b := s.as(s.secrets["owner"])
	page := b.page("/console/search?q=otter&knowledgeBase=old&compare=new&cursor=x")
	for _, want := range []string{"only in old", "only in new", "place 2 in the other base", "place 1 in the other base", "not in the other base", "Looked for: text", "Looked for: hybrid"} {
		require.Contains(t, page, want)
	}
	require.Equal(t, 2, strings.Count(page, "not in the other base"))
	page = b.page("/console/search?q=otter&knowledgeBase=old")
	require.NotContains(t, page, "other base")
	require.NotContains(t, page, "only in new")
	w := b.get("/console/search?q=otter&knowledgeBase=old&compare=gone")
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), `value="otter"`)
	require.Contains(t, w.Body.String(), web.CodeBaseNotFound)
	require.NotContains(t, w.Body.String(), "only in old")

	made := decode[wire.CreatedKey](t, s.bench.send(s.secrets["operator"], http.MethodPost, "/internal/keys", `{"userId":"ada","name":"s","scopes":["search"]}`))
	require.Contains(t, s.as(made.Secret).page("/console/search?q=otter&knowledgeBase=old"), "only in old")
}

// A document's versions are listed, the newest first; one whose content is kept can be gone back to, by who may write.
func TestDocumentVersions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	accepted := decode[wire.AcceptedTask](t, s.upload(s.secrets["owner"], asyncPath, nil, file("mill.txt", "one")))
	path := "/api/knowledge/documents/" + string(accepted.DocumentID)
	s.earlierVersion(string(accepted.DocumentID))
	first := decode[wire.List[wire.Version]](t, s.bench.send(s.secrets["owner"], http.MethodGet, path+"/versions?limit=1", ""))
	require.True(t, first.HasMore)
	second := decode[wire.List[wire.Version]](t, s.bench.send(s.secrets["owner"], http.MethodGet, path+"/versions?limit=1&cursor="+string(first.NextCursor), ""))
	require.Len(t, first.Items, 1)
	require.Len(t, second.Items, 1)
	newest, before := first.Items[0], second.Items[0]
	require.Greater(t, newest.Version, before.Version)
	require.Equal(t, "VISIBLE", newest.State)
	require.Equal(t, "SUPERSEDED", before.State)
	require.True(t, before.ContentKept)
	require.Equal(t, accepted.TaskID, newest.TaskID)
	s.refused(s.bench.send(s.secrets["other"], http.MethodGet, path+"/versions", ""), http.StatusNotFound, web.CodeDocumentNotFound)

	screen := "/console/documents/" + string(accepted.DocumentID)
	require.Contains(t, s.as(s.secrets["owner"]).page(screen), "Go back to version "+strconv.FormatInt(before.Version, 10))
	require.Contains(t, s.as(s.secrets["reader"]).page(screen), "superseded")
	require.NotContains(t, s.as(s.secrets["reader"]).page(screen), "Go back to version")
}

// An operator sees another user's document, and no button that would not work.
func TestAnOperatorIsOfferedWhatWorksOnAnothersDocument(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	accepted := decode[wire.AcceptedTask](t, s.upload(s.secrets["owner"], asyncPath, nil, file("mill.txt", "one")))
	require.Equal(t, "ada", accepted.Document.UserID)
	s.earlierVersion(string(accepted.DocumentID))
	screen := "/console/documents/" + string(accepted.DocumentID)
	for who, offered := range map[string]bool{"owner": true, "operator": false} {
		page := s.as(s.secrets[who]).page(screen)
		require.Equal(t, offered, slices.Contains(forms(page), screen+"/rollback"), who)
		require.Equal(t, offered, strings.Contains(page, "/console/preview?document="), who)
		require.Contains(t, forms(page), screen+"/delete", who)
		require.Equal(t, !offered, strings.Contains(page, "It is a document of ada"), who)
	}
}

// Dead letters are replayed and dropped from the console, each by itself and all that fit a filter; a dry run changes nothing.
func TestConsoleMendsDeadLetters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(s.secrets["operator"])
	count := func() int {
		return len(decode[wire.List[wire.DeadLetter]](t, s.bench.send(s.secrets["operator"], http.MethodGet, deadLettersPath, "")).Items)
	}
	status := func(id string) taskstate.Status {
		return decode[wire.Task](t, s.bench.send(s.secrets["owner"], http.MethodGet, "/api/knowledge/tasks/"+id, "")).Status
	}
	one, entry := s.dead("the disk was full")
	other, second := s.dead("the network was down")
	page := b.page("/console/deadletters")
	for _, id := range []string{entry, second} {
		require.Contains(t, forms(page), "/console/deadletters/"+id+"/replay")
	}
	w := b.post("/console/deadletters/"+entry+"/replay", nil)
	require.Equal(t, "/console/deadletters?done=replay", w.Header().Get("Location"), w.Body.String())
	require.Equal(t, taskstate.StatusQueued, status(one))
	require.Equal(t, taskstate.StatusDead, status(other))
	w = b.post("/console/deadletters/"+second+"/drop", url.Values{"reason": {"sent by mistake"}})
	require.Equal(t, "/console/deadletters?done=drop", w.Header().Get("Location"), w.Body.String())
	require.Contains(t, s.trails(audit.DeadLetterDrop)[0].Detail, `reason "sent by mistake" entry `+second+": ")
	left := count()

	third, _ := s.dead("the disk was full")
	fourth, _ := s.dead("the network was down")
	w = b.post("/console/deadletters", url.Values{"step": {"replay"}, "error": {"disk"}, "dryRun": {"1"}})
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Contains(t, w.Body.String(), "A dry run: 1 dead letters would be replayed.")
	require.Equal(t, taskstate.StatusDead, status(third))
	w = b.post("/console/deadletters", url.Values{"step": {"replay"}, "error": {"disk"}})
	require.Contains(t, w.Body.String(), "1 dead letters were replayed.")
	require.Equal(t, taskstate.StatusQueued, status(third))
	require.Equal(t, taskstate.StatusDead, status(fourth))
	require.Equal(t, left+1, count())
	w = b.post("/console/deadletters", url.Values{"step": {"drop"}})
	require.Contains(t, w.Body.String(), "dead letters were dropped.")
	require.Zero(t, count())
	require.Equal(t, http.StatusNotFound, b.post("/console/deadletters", url.Values{"step": {"burn"}}).Code)
	require.Equal(t, http.StatusForbidden, s.as(s.secrets["owner"]).post("/console/deadletters", url.Values{"step": {"drop"}}).Code)
}

// publishFailing publishes messages with these keys to a topic whose only member fails them all, with their keys in the error.
func (s *site) publishFailing(topic string, partitions int, keys ...string) {
	s.t.Helper()
	q := &queue{bench: s.bench, mq: s.mq, topic: topic}
	_, err := s.mq.CreateTopic(s.t.Context(), streammq.Topic{Name: topic, Partitions: partitions})
	require.NoError(s.t, err)
	for _, key := range keys {
		_, err := s.mq.NewProducer(nil).Publish(s.t.Context(), topic, streammq.Message{Key: key, Payload: []byte("payload of " + key), Headers: map[string]string{"x-note": key}})
		require.NoError(s.t, err)
	}
	q.consume(len(keys), func(d *streammq.Delivery) streammq.Result { return streammq.Fail(errors.New("no use: " + d.Key)) })
}

// Dead letters of a topic are found, looked at, replayed and dropped from the console, each by itself and all that fit the filter; the
// reason of a drop is in the audit log.
func TestConsoleMendsDeadLettersOfTopics(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, op := s.as(s.secrets["operator"]), s.secrets["operator"]
	s.publishFailing("returns", 2, "k0", "k1", "k2", "k3", "<b>k4</b>")
	letters := func(query string) []wire.TopicDeadLetter {
		return decode[wire.List[wire.TopicDeadLetter]](t, s.bench.send(op, http.MethodGet, "/internal/dlq/topics/returns/letters"+query, "")).Items
	}
	const screen = "/console/queues/returns/letters"
	require.Contains(t, b.page("/console/queues/returns"), `href="`+screen+`"`)
	for query, want := range map[string]int{"": 5, "?error=NO+USE:+k3": 1, "?key=k1": 1, "?group=nobody": 0, "?partition=0": len(letters("?partition=0"))} {
		require.Equal(t, want, strings.Count(b.page(screen+query), `class="entry"`), query)
	}
	require.Equal(t, http.StatusBadRequest, b.get(screen+"?partition=x").Code)
	one, two := letters("?key=k0")[0], letters("?key=k1")[0]
	look := b.page(screen + "/" + one.ID)
	for _, text := range []string{"payload of k0", "no use: k0", "x-note", one.OriginalID} {
		require.Contains(t, look, text)
	}
	hostile := b.page(screen + "/" + letters("?key=%3Cb%3Ek4%3C/b%3E")[0].ID)
	require.NotContains(t, hostile, "<b>k4")
	require.Contains(t, hostile, "payload of &lt;b&gt;k4&lt;/b&gt;")
	require.Equal(t, http.StatusNotFound, b.get(screen+"/5-5").Code)
	require.Equal(t, http.StatusNotFound, b.get("/console/queues/nothing/letters").Code)

	w := b.post(screen+"/"+one.ID+"/replay", url.Values{"back": {"/queues/returns/letters?key=k0"}})
	require.Equal(t, screen+"?done=replay&key=k0", w.Header().Get("Location"), w.Body.String())
	require.NotEmpty(t, letters("?key=k0")[0].ReplayedAs)
	require.Equal(t, http.StatusConflict, b.post(screen+"/"+one.ID+"/replay", nil).Code)
	w = b.post(screen+"/"+two.ID+"/drop", url.Values{"reason": {"its sender is gone"}})
	require.Equal(t, screen+"?done=drop", w.Header().Get("Location"), w.Body.String())
	require.Empty(t, letters("?key=k1"))
	noted := s.trails(audit.DeadLetterDrop)
	require.Equal(t, "returns/"+two.ID, noted[0].Target)
	require.Contains(t, noted[0].Detail, `reason "its sender is gone"`)
	require.Contains(t, noted[0].Detail, "no use: k1")

	w = b.post(screen+"?key=k2", url.Values{"step": {"drop"}, "dryRun": {"1"}})
	require.Contains(t, w.Body.String(), "A dry run: 1 dead letters would be dropped.")
	require.Len(t, letters(""), 4)
	w = b.post(screen+"?error=k3", url.Values{"step": {"replay"}})
	require.Contains(t, w.Body.String(), "1 dead letters were replayed.")
	w = b.post(screen+"?unreplayed=true", url.Values{"step": {"drop"}, "reason": {"tidy"}})
	require.Contains(t, w.Body.String(), "2 dead letters were dropped.", "what was replayed stays")
	require.Contains(t, s.trails(audit.DeadLetterDrop)[0].Detail, `reason "tidy" unreplayed`)
	require.Len(t, letters(""), 2)
	w = b.post(screen, url.Values{"step": {"drop"}})
	require.Contains(t, w.Body.String(), "2 dead letters were dropped.")
	require.Empty(t, letters(""))
	require.Equal(t, http.StatusNotFound, b.post(screen, url.Values{"step": {"burn"}}).Code)
	require.Equal(t, http.StatusForbidden, s.as(s.secrets["owner"]).get(screen).Code)
	require.Equal(t, http.StatusForbidden, s.as(s.secrets["watcher"]).post(screen, url.Values{"step": {"drop"}}).Code)
	w = s.bench.send(op, http.MethodDelete, "/internal/dlq/topics/returns/letters/1-1?reason="+strings.Repeat("x", 201), "")
	require.Contains(t, s.refused(w, http.StatusBadRequest, web.CodeInvalidParameter).Message, "reason")
}

// links are the addresses of a page's navigation of that name, by their text.
func links(t *testing.T, page, nav string) map[string]string {
	t.Helper()
	out := map[string]string{}
	part := regexp.MustCompile(`(?s)<nav class="facets[^"]*" aria-label="` + nav + `">.*?</nav>`).FindString(page)
	for _, m := range regexp.MustCompile(`(?s)<a href="([^"]*)"[^>]*>(.*?)</a>`).FindAllStringSubmatch(part, -1) {
		out[html.UnescapeString(strings.TrimSpace(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[2], "")))] = html.UnescapeString(m[1])
	}
	return out
}

// A click on a base or a stage puts its word into the filter, whatever the base is called and whatever was chosen before; a second click
// takes it out. The counts are those that are kept.
func TestConsoleHasFacetsByBaseAndStage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	owner := s.secrets["owner"]
	const name = `a "b" \c`
	make := func(base, text string) wire.AcceptedTask {
		w := s.upload(owner, asyncPath, nil, part{"knowledgeBase", "", base}, file("a.txt", text))
		require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
		return decode[wire.AcceptedTask](t, w)
	}
	made := s.bench.send(owner, http.MethodPost, "/api/knowledge/bases", mustJSON(t, wire.BaseRequest{Name: name}))
	require.Equal(t, http.StatusCreated, made.Code, made.Body.String())
	run := make(name, "one")
	s.move(run.TaskID, taskstate.StatusRunning)
	dead := make(name, "two")
	s.move(dead.TaskID, taskstate.StatusRunning)
	s.move(dead.TaskID, taskstate.StatusDead)
	counts := decode[wire.TaskCounts](t, s.bench.send(owner, http.MethodGet, "/api/knowledge/tasks/counts", ""))
	require.Equal(t, map[taskstate.Status]int64{"QUEUED": 1, "RUNNING": 1, "DEAD": 1}, counts.Counts)
	require.Len(t, counts.Stages, 1)
	only := decode[wire.TaskCounts](t, s.bench.send(owner, http.MethodGet, "/api/knowledge/tasks/counts?knowledgeBase="+url.QueryEscape(name), ""))
	require.Equal(t, map[taskstate.Status]int64{"RUNNING": 1, "DEAD": 1}, only.Counts)
	require.Equal(t, name, only.Bases[0].Name)
	s.refused(s.bench.send(s.secrets["other"], http.MethodGet, "/api/knowledge/tasks/counts?knowledgeBase="+string(run.KnowledgeBaseID), ""), http.StatusNotFound, web.CodeBaseNotFound)

	rows := func(page string) int { return strings.Count(page, `<tr data-row id="t-`) }
	for _, who := range []string{"owner", "operator"} {
		b := s.as(s.secrets[who])
		bases := links(t, b.page("/console/tasks?status=DEAD"), "Base")
		require.Contains(t, bases, name+" 1", "of those that are DEAD, as an %s", who)
		page := b.page(bases[name+" 1"])
		require.Equal(t, 1, rows(page))
		require.Contains(t, page, dead.TaskID)
		back := links(t, page, "Base")[name+" 1"]
		require.NotContains(t, back, "kb")
		require.Contains(t, b.page(back), "status:DEAD")
		bases = links(t, b.page("/console/tasks"), "Base")
		page = b.page(bases[name+" 2"])
		require.Equal(t, 2, rows(page))
		page = b.page(links(t, page, "Status")["✕ failed "+map[string]string{"owner": "1", "operator": "1"}[who]])
		require.Equal(t, 1, rows(page), "the status joins the expression")
		stages := links(t, b.page("/console/tasks"), "Stage")
		require.Len(t, stages, 1)
		for _, link := range stages {
			page = b.page(link)
			require.Equal(t, 1, rows(page))
			require.Contains(t, page, run.TaskID)
		}
	}
}

// Home tells operators how workers, the queue and the rules are, in both languages; it tells nobody else.
func TestConsoleHomeSaysHowTheInstallationIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	root := s.as(s.secrets["operator"])
	facts := func() string {
		_, after, found := strings.Cut(root.page("/console"), "<h2>Installation</h2>")
		require.True(t, found)
		return after
	}
	first := facts()
	for _, want := range []string{"No worker process has lived in the last hour.", "deliveries in the stream: 3 · waiting for a retry: 0", "The installation was not checked yet."} {
		require.Contains(t, first, want)
	}
	require.NotContains(t, s.as(s.secrets["owner"]).page("/console"), "<h2>Installation</h2>")

	soon := time.Now().UTC().Add(time.Minute)
	s.exec(`INSERT INTO ingest_worker (name, lease_until, created_at, slots) VALUES (?, ?, ?, 64)`, "w-1", soon, time.Now().UTC())
	s.exec(`INSERT INTO ingest_worker (name, lease_until, created_at, drain_at) VALUES (?, ?, ?, ?)`, "w-2", soon, time.Now().UTC(), time.Now().UTC())
	s.checked("x")
	said := facts()
	for _, want := range []string{"alive: 3 · running tasks: 0 · slots: 64 · take no new task: 1", "</span> violations: 7</span> · <time"} {
		require.Contains(t, said, want)
	}
	s.exec(`UPDATE ingest_worker SET lease_until = ? WHERE name = 'w-1'`, time.Now().UTC().Add(-time.Minute))
	require.Contains(t, facts(), "alive: 2 · running tasks: 0", "it is gone, and nothing is lost with it")
	id := s.accept(s.secrets["owner"], "a.txt", "some text").TaskID
	policy := taskstate.Policy{BaseBackoff: time.Second, MaxBackoff: time.Second, Lease: time.Minute, MaxCrashes: 3}
	outs, err := s.parts.Store.Apply(t.Context(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{Owner: "w-3/1", Process: "w-3", Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w-3"}})
	})})
	require.NoError(t, err)
	require.Equal(t, taskstate.AnswerClaimed, outs[0].Answer)
	require.Contains(t, facts(), "alive: 3 · running tasks: 1")
	s.exec(`UPDATE ingest_worker SET lease_until = ? WHERE name = 'w-3'`, time.Now().UTC().Add(-time.Minute))
	require.Contains(t, facts(), "</span> alive: 2 · running tasks: 0 · take no new task: 1 · have tasks and an ended lease: 1</span>")
	root.headers["Accept-Language"] = "zh"
	require.Contains(t, root.page("/console"), "违规：7")
}

// A process is drained and let take tasks again from the console; its state is seen until it is gone, and the audit log has both.
func TestConsoleDrainsAWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const name = "w-1.example_<b>"
	s.exec(`INSERT INTO ingest_worker (name, lease_until, created_at) VALUES (?, ?, ?)`, name, time.Now().UTC().Add(time.Minute), time.Now().UTC())
	b, at := s.as(s.secrets["operator"]), "/console/workers/"+url.PathEscape(name)
	const running, unsaid = `<td class="num">0</td>`, `<td class="num">–</td>`
	require.Contains(t, b.page("/console/workers"), running+unsaid, "its first renewal says how many slots it has")
	for _, slots := range []int{0, 64} {
		s.exec(`UPDATE ingest_worker SET slots = ? WHERE name = ?`, slots, name)
		require.Contains(t, b.page("/console/workers"), running+`<td class="num">`+strconv.Itoa(slots)+`</td>`)
	}
	require.Contains(t, slices.Collect(maps.Keys(filled(t, b.page("/console/workers")))), at+"/drain")
	w := b.post(at+"/drain", nil)
	require.Equal(t, "/console/workers?done=worker-drain", w.Header().Get("Location"), w.Body.String())
	page := b.page("/console/workers")
	require.Contains(t, page, "draining")
	require.NotContains(t, page, "<b>")
	worker := decode[wire.List[wire.Worker]](t, s.bench.send(s.secrets["operator"], http.MethodGet, "/internal/workers", "")).Items[0]
	require.False(t, worker.DrainAt.Missing())
	require.True(t, worker.DrainedAt.Missing())
	s.exec(`UPDATE ingest_worker SET drained_at = ? WHERE name = ?`, time.Now().UTC(), name) // as the process does
	require.Contains(t, b.page("/console/workers"), "drained")
	w = b.post(at+"/resume", nil)
	require.Equal(t, "/console/workers?done=worker-resume", w.Header().Get("Location"), w.Body.String())
	require.Contains(t, slices.Collect(maps.Keys(filled(t, b.page("/console/workers")))), at+"/drain")
	require.Equal(t, name, s.trails(audit.WorkerDrain)[0].Target)
	require.Equal(t, name, s.trails(audit.WorkerResume)[0].Target)
	for _, unknown := range []string{"nobody", strings.Repeat("x", 200), "a%00b", "%ff", "a%0ab"} {
		s.refused(s.bench.send(s.secrets["operator"], http.MethodPost, "/internal/workers/"+unknown+"/drain", ""), http.StatusNotFound, web.CodeWorkerNotFound)
	}
	require.Equal(t, http.StatusForbidden, s.as(s.secrets["watcher"]).post(at+"/drain", nil).Code)
	require.Equal(t, http.StatusForbidden, s.as(s.secrets["owner"]).post(at+"/drain", nil).Code)
	require.NotContains(t, forms(s.as(s.secrets["watcher"]).page("/console/workers")), at+"/drain")
}

// filled are the forms of a page that change something, by address, with the values that they send: those of the page, and what a person
// would type into the others.
func filled(t *testing.T, page string) map[string]url.Values {
	t.Helper()
	typed := map[string]string{"name": "otters", "userId": "ada", "filter": "status:DEAD", "reason": "why", "key": "x"}
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	attr := func(n *html.Node, name string) string {
		for _, a := range n.Attr {
			if a.Key == name {
				return a.Val
			}
		}
		return ""
	}
	out := map[string]url.Values{}
	var walk func(n *html.Node, form url.Values)
	walk = func(n *html.Node, form url.Values) {
		if n.Data == "form" && attr(n, "method") == "post" && attr(n, "enctype") == "" {
			form = url.Values{}
			out[attr(n, "action")] = form
		}
		if name := attr(n, "name"); form != nil && name != "" {
			switch value := cmp.Or(attr(n, "value"), typed[name]); {
			case n.Data == "input" && attr(n, "type") != "checkbox", n.Data == "button" && form.Get(name) == "":
				form.Set(name, value)
			}
		}
		for child := range n.ChildNodes() {
			walk(child, form)
		}
	}
	walk(root, nil)
	return out
}

// Every form on every screen does something: none asks an address that the API does not have, or in a way that it refuses.
func TestEveryFormOfTheConsoleWorks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	user, operator := s.fill("otter")
	task, _ := s.dead("the disk was full")
	s.dead("the network was down")
	s.deadEvent(task)
	s.publishFailing("returns", 1, "k0", "k1")
	s.earlierVersion(strings.TrimPrefix(user[11], "/console/documents/"))
	require.Equal(t, http.StatusOK, s.bench.send(s.secrets["owner"], http.MethodPost, "/api/knowledge/views", `{"name":"mine","filter":"status:DEAD"}`).Code)
	b, root := s.as(s.secrets["owner"]), s.as(s.secrets["operator"])
	w := b.post("/console/bulk", url.Values{"action": {"retry"}, "filter": {"status:DEAD"}})
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body.String())
	type wish struct {
		of     *browser
		values url.Values
	}
	wishes := map[string]wish{}
	id := regexp.MustCompile(`/[0-9a-f-]{36}|/\d+(-\d+)?`)
	known := map[string]string{} // form without ids → with
	collect := func(of *browser, pages ...string) {
		for _, path := range pages {
			forms := filled(t, of.page(path))
			for _, action := range slices.Sorted(maps.Keys(forms)) {
				values := forms[action]
				if kind := id.ReplaceAllString(action, "/:id"); known[kind] == "" || strings.HasSuffix(kind, "/drop") { // not of what is replayed
					delete(wishes, known[kind])
					known[kind], wishes[action] = action, wish{of, values}
				}
			}
		}
	}
	collect(b, append(user, "/console/tasks?filter=status:DEAD", w.Header().Get("Location"))...)
	collect(root, append(append(operator, "/console/queues/returns/letters"), user...)...)
	require.Greater(t, len(wishes), 20)
	last := func(action string) int { // what takes away comes last, and what takes away most at the end
		return 1 + slices.IndexFunc([]string{"/tasks/:id/delete", "/drop", "/deadletters", "/letters", "/documents/:id/delete", "/bases/:id/delete", "/revoke", "/logout"}, func(end string) bool {
			return strings.HasSuffix(id.ReplaceAllString(action, "/:id"), end)
		})
	}
	order := slices.SortedFunc(maps.Keys(wishes), func(x, y string) int { return cmp.Or(last(x)-last(y), strings.Compare(x, y)) })
	for _, action := range order {
		if strings.HasSuffix(action, "/selected") { // its boxes stand outside of it; TestConsoleWithoutScript ticks them
			continue
		}
		w := wishes[action].of.post(action, wishes[action].values)
		require.Contains(t, []int{http.StatusSeeOther, http.StatusOK, http.StatusConflict}, w.Code, "%s %v: %s", action, wishes[action].values, w.Body.String())
	}
}

// A preview is asked for with a file or for a document, leads to its page, and says what is wrong with it.
func TestConsolePreviews(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	user, _ := s.fill("otter")
	b := s.as(s.secrets["owner"])
	page := regexp.MustCompile(`^/console/preview/[0-9a-f-]{36}$`)
	send := func(parts ...part) *httptest.ResponseRecorder {
		body, kind := form(t, parts...)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/console/preview", body)
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		return b.send(r)
	}
	require.Contains(t, forms(b.page("/console/preview")), "/console/preview")
	w := send(part{"knowledgeBase", "", ""}, part{"chunking", "", ""}, file("one.txt", "an otter"))
	require.Regexp(t, page, w.Header().Get("Location"), w.Body.String())
	require.Contains(t, b.page(w.Header().Get("Location")), `data-live="poll"`)
	require.Equal(t, http.StatusSeeOther, send(part{"chunking", "", `{"strategy":"rows"}`}, file("one.txt", "an otter")).Code)
	w = send(part{"chunking", "", `{"size":1}`}, file("one.txt", "an otter"))
	require.Equal(t, http.StatusUnprocessableEntity, w.Code)
	require.Contains(t, w.Body.String(), "chunking.size")

	document := user[11]
	require.Contains(t, document, "/console/documents/")
	id := strings.TrimPrefix(document, "/console/documents/")
	require.Contains(t, b.page(document), "/console/preview?document="+id)
	require.Contains(t, b.page("/console/preview?document="+id), `name="documentId" value="`+id+`"`)
	w = b.post("/console/preview", url.Values{"documentId": {id}, "chunking": {`{"strategy":"headings"}`}})
	require.Regexp(t, page, w.Header().Get("Location"), w.Body.String())
	require.Equal(t, http.StatusUnprocessableEntity, b.post("/console/preview", url.Values{"documentId": {id}, "chunking": {"rows"}}).Code)
	require.Equal(t, http.StatusNotFound, b.get("/console/preview?document=0190a6e0-0000-7000-8000-000000000000").Code)

	reader := s.as(s.secrets["reader"])
	require.NotContains(t, forms(reader.page("/console/preview")), "/console/preview")
}

// Nothing leads away from the console, whatever an address says.
func TestConsoleLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, next := range []string{
		"https://evil.example/", "//evil.example/", `/\evil.example`, "/\t/evil.example", "javascript:alert(1)", "/../../api", "/..", "\r\nX: y", "", strings.Repeat("/a", 2000),
	} {
		w := s.browser().post("/console/login", url.Values{"key": {s.secrets["owner"]}, "next": {next}})
		require.Equal(t, "/console/", w.Header().Get("Location"), "%q", next)
	}
}

// The console knows where a trusted proxy has put it, and believes nobody else; a strange prefix is none.
func TestConsoleBehindAPrefix(t *testing.T) {
	t.Parallel()
	s := newConsoleSite(t, "otter", func(c *Config, _ *Deps) { c.TrustedProxies = []string{"192.0.2.0/24"} })
	b := s.as(s.secrets["operator"])
	b.headers["X-Forwarded-Prefix"] = "/docs/mill/"
	page := b.page("/console/tasks")
	require.Contains(t, page, `href="/docs/mill/console/documents"`)
	require.NotContains(t, page, `"/console`)
	asset := regexp.MustCompile(`src="/docs/mill(/console/assets/[^"]+)"`).FindStringSubmatch(page)
	require.NotNil(t, asset)
	w := b.get(asset[1])
	require.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
	require.Equal(t, "text/javascript; charset=utf-8", w.Header().Get("Content-Type"))
	require.Equal(t, http.StatusNotFound, b.get("/console/assets/console.js").Code, "only the name that says the content lasts")

	for _, prefix := range []string{"//evil.example", "/a/../b", "/a b", "javascript:x", `/a"b`, "/a?b", "/a\\b", "a", "/.", strings.Repeat("/a", 9)} {
		b.headers["X-Forwarded-Prefix"] = prefix
		require.Contains(t, b.page("/console/tasks"), `href="/console/documents"`, "%s", prefix)
	}
	plain := newConsoleSite(t, "otter")
	c := plain.as(plain.secrets["owner"])
	c.headers["X-Forwarded-Prefix"] = "/docs/mill"
	require.Contains(t, c.page("/console/tasks"), `href="/console/documents"`, "nobody is trusted")
}

// With AUTH_MODE=none there is no log-in, for the names of this machine alone.
func TestConsoleIsOpenToItsMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cfg := testConfig()
	cfg.AuthMode = AuthNone
	var err error
	s.g, err = New(cfg, s.g.deps2())
	require.NoError(t, err)
	b := s.browser()
	require.Contains(t, b.page("/console"), ">local<")
	require.Equal(t, "/console/", b.get("/console/login").Header().Get("Location"))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console", nil)
	r.Host = "evil.example"
	w := httptest.NewRecorder()
	s.g.ServeHTTP(w, r)
	s.refused(w, http.StatusForbidden, web.CodeHostNotAllowed)
}

// A link on another site: the browser keeps the cookie back at first, and the page asks once more.
func TestConsoleLinkFromElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.browser()
	b.headers["Sec-Fetch-Site"] = "cross-site"
	w := b.get("/console/tasks")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "0", w.Header().Get("Refresh"))
	b.headers["Sec-Fetch-Site"] = "same-origin"
	require.Equal(t, http.StatusSeeOther, b.get("/console/tasks").Code)
}

// The console passes the file of a document on as it comes, and shows a refusal as a page.
func TestTheConsoleHandsOutFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	accepted := decode[wire.AcceptedTask](t, s.upload(s.secrets["owner"], asyncPath, nil, file("mill.txt", "the first bytes")))
	screen := "/console/documents/" + string(accepted.DocumentID)
	owner := s.as(s.secrets["owner"])
	require.Contains(t, owner.page(screen), `href="`+screen+`/file"`)
	w := owner.get(screen + "/file?version=1")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "the first bytes", w.Body.String())
	require.Equal(t, "attachment; filename=mill.txt", w.Header().Get("Content-Disposition"))
	tag := w.Header().Get("ETag")
	for header, want := range map[[2]string]int{{"Range", "bytes=4-8"}: http.StatusPartialContent, {"If-None-Match", tag}: http.StatusNotModified} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, screen+"/file", nil)
		r.Header.Set(header[0], header[1])
		w := owner.send(r)
		require.Equal(t, want, w.Code, header)
		require.Equal(t, map[int]string{http.StatusPartialContent: "first"}[want], w.Body.String())
	}
	for who, want := range map[string]int{"other": http.StatusNotFound, "viewer": http.StatusForbidden} {
		w := s.as(s.secrets[who]).get(screen + "/file")
		require.Equal(t, want, w.Code, who)
		require.Contains(t, w.Header().Get("Content-Type"), "text/html")
		require.Empty(t, w.Header().Get("Content-Disposition"))
	}
	require.NotContains(t, s.as(s.secrets["viewer"]).page(screen), screen+"/file")
}
