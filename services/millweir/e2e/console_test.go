package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/labserver/installed"
	"github.com/millweir/millweir/pkg/streammq"
)

// shots is where screenshots are kept for people to look at: `.run/console` of the repository.
const shots = "../../../.run/console"

// chrome is a browser with what it complains of.
type chrome struct {
	t   *testing.T
	ctx context.Context
	url string

	mu   sync.Mutex
	said []string // errors of the console, exceptions, reports of the policy
}

// newChrome starts a Chromium of its own.
func newChrome(t *testing.T, url string) *chrome {
	t.Helper()
	path, err := installed.Chromium()
	require.NoError(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("headless", "new"),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.WSURLReadTimeout(waitLimit))
	pool, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, cancel := chromedp.NewContext(pool)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the process
		cancel()
		stop()
	})
	c := &chrome{t: t, ctx: ctx, url: url}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.LevelError || e.Entry.Source == cdplog.SourceSecurity || e.Entry.Source == cdplog.SourceViolation {
				c.note("%s %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
			}
		case *runtime.EventExceptionThrown:
			c.note("exception %s", e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				text, _ := json.Marshal(e.Args)
				c.note("console.%s %s", e.Type, text)
			}
		case *cdppage.EventJavascriptDialogOpening:
			c.note("dialog %s", e.Message)
		}
	})
	c.do(cdplog.Enable(), runtime.Enable(), cdppage.Enable(), network.Enable())
	return c
}

func (c *chrome) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, fmt.Sprintf(format, args...))
}

// complaints are what was said since the last time.
func (c *chrome) complaints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.said
	c.said = nil
	return out
}

func (c *chrome) do(actions ...chromedp.Action) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, waitLimit)
	defer cancel()
	if c.ctx != nil && chromedp.FromContext(c.ctx).Target == nil {
		ctx = c.ctx // the first run starts the browser, which lives as long as its context
	}
	require.NoError(c.t, chromedp.Run(ctx, actions...))
}

// open goes to an address below /console.
func (c *chrome) open(path string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.url+"/console"+path), chromedp.WaitReady("main"))
}

// text is what a selector's first element shows, once it shows something. It is found and read in one evaluation, as the page
// exchanges what has changed: chromedp.Text asks for the node's id first, which may name nothing when it is used.
func (c *chrome) text(selector string) string {
	c.t.Helper()
	var shown *string
	eventually(c.t, selector+" is shown", func() bool {
		err := chromedp.Run(c.ctx, chromedp.Evaluate(fmt.Sprintf(`(() => { const e = document.querySelector(%q); return e?.checkVisibility() ? e.innerText : null; })()`, selector), &shown))
		return err == nil && shown != nil
	})
	return *shown
}

// click clicks on a selector's first element, found and used in one evaluation like [chrome.text].
func (c *chrome) click(selector string) {
	c.t.Helper()
	c.pressed(fmt.Sprintf(`document.querySelector(%q)`, selector))
}

// pressed clicks on the element that an expression is, once it is shown.
func (c *chrome) pressed(expression string) {
	c.t.Helper()
	c.truth(expression+" is shown", `Boolean((`+expression+`)?.checkVisibility())`)
	c.do(chromedp.Evaluate(`(`+expression+`).click()`, nil, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithUserGesture(true) }))
}

// truth evaluates an expression until it is true.
func (c *chrome) truth(what, expression string) {
	c.t.Helper()
	eventually(c.t, what, func() bool {
		var is bool
		err := chromedp.Run(c.ctx, chromedp.Evaluate(expression, &is)) // a page that is being left has not what is asked for
		return err == nil && is
	})
}

// logIn logs a key in.
func (c *chrome) logIn(key string) {
	c.t.Helper()
	c.open("/login")
	c.do(chromedp.SendKeys(`input[name=key]`, key, chromedp.ByQuery), chromedp.Click("form button.primary", chromedp.ByQuery), chromedp.WaitReady(".side"))
}

// look sets the cookie that the switches of the page set.
func (c *chrome) look(words string) {
	c.t.Helper()
	c.do(network.SetCookie("millweir-look", words).WithURL(c.url + "/console").WithPath("/console"))
}

// pageWidth is the width of the page in pixels. It is compared with the width that was asked for, not with innerWidth: a browser that
// passes for a telephone zooms out until all of the page fits.
func (c *chrome) pageWidth() (pixels int64) {
	c.t.Helper()
	c.do(chromedp.Evaluate("document.documentElement.scrollWidth", &pixels))
	return pixels
}

// violations are what axe-core finds on the page, one line each.
func (c *chrome) violations(axe string) (out []string) {
	c.t.Helper()
	var there bool
	c.do(chromedp.Evaluate(`typeof window.axe === "object"`, &there))
	if !there {
		c.do(chromedp.Evaluate(axe, nil))
	}
	var found []struct {
		ID    string `json:"id"`
		Nodes []struct {
			HTML    string `json:"html"`
			Summary string `json:"failureSummary"`
		} `json:"nodes"`
	}
	c.do(chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"], rules: {"label-content-name-mismatch": {enabled: true}}}).then((r) => r.violations)`, &found,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	for _, v := range found {
		for _, n := range v.Nodes[:min(len(v.Nodes), 3)] {
			out = append(out, fmt.Sprintf("%s: %.300s: %.400s", v.ID, n.HTML, n.Summary))
		}
	}
	return out
}

// screen is one page to look at.
type screen struct{ name, path string }

// furnished is an all-in-one with keys, in which every screen has something to show; hostile texts are among it.
func furnished(t *testing.T, also ...string) (c *client, operator string, screens []screen) {
	t.Helper()
	data := t.TempDir()
	env := []string{"AUTH_MODE=keys", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=3600000", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=3600000"}
	p := start(t, "dev", append(env, also...), "--data", data, "--addr", "127.0.0.1:0")
	url := p.printed(`ready (http://\S+)`)
	require.Equal(t, url+"/console", p.printed(`console (http://\S+)`))
	database := "DATABASE_URL=sqlite:" + filepath.Join(data, "millweir.db")
	operator = newKey(t, database, "--user", "root", "--role", "operator")
	c = newClient(t, url).as(operator)
	good := c.accepted("water-mills.txt", []byte("The otter swims past the weir.\n\nA mill needs water, a wheel and a miller. "+strings.Repeat("The wheel turns. ", 200)))
	c.ended(good.TaskID)
	for _, name := range []string{"report 2024.txt", `"><img src=x onerror=alert(1)>.txt`, "<script>alert(1)<-script>.txt", "水車小屋.txt", strings.Repeat("a-very-long-name-", 12) + ".txt"} {
		c.ended(c.accepted(name, []byte(name+"\n\n<script>alert(document.domain)</script> otter \u202egnp.exe\n"+strings.Repeat("Lorem ipsum dolor sit amet. ", 30))).TaskID)
	}
	loop := "%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 9999>>endobj\n" +
		"3 0 obj<</Type/Pages/Parent 2 0 R/Kids[2 0 R]/Count 9999>>endobj\ntrailer<</Size 4/Root 1 0 R>>\nstartxref\n0\n%%EOF"
	dead := c.ended(c.accepted("broken.pdf", []byte(loop)).TaskID)
	require.Equal(t, "DEAD", dead.Status)
	require.Equal(t, http.StatusCreated, c.json(http.MethodPost, "/api/knowledge/bases", `{"name":"legal"}`).status)
	require.Equal(t, http.StatusCreated, c.json(http.MethodPost, "/internal/keys", `{"userId":"ada","name":"laptop","scopes":["read"]}`).status)
	var one struct {
		DocumentID      string `json:"documentId"`
		KnowledgeBaseID string `json:"knowledgeBaseId"`
	}
	var operation struct {
		OperationID string `json:"operationId"`
	}
	c.json(http.MethodPost, "/api/knowledge/bulk", `{"action":"retry","filter":"status:DEAD","reason":"the <b>disk</b> was full"}`).into(t, http.StatusAccepted, &operation)
	eventually(t, "the operation ends", func() bool {
		var now struct {
			Status string `json:"status"`
		}
		c.get("/api/knowledge/bulk/"+operation.OperationID).into(t, http.StatusOK, &now)
		return now.Status == "SUCCEEDED"
	})
	require.Equal(t, "DEAD", c.ended(dead.TaskID).Status)
	require.Equal(t, http.StatusOK, c.json(http.MethodPost, "/api/knowledge/views", `{"name":"mine","filter":"age<1h"}`).status)
	c.get("/api/knowledge/tasks/"+good.TaskID).into(t, http.StatusOK, &one)
	body, kind := form(t, "water-mills.txt", []byte("The otter sleeps.\n\n"+strings.Repeat("The wheel stands still. ", 50)))
	var renewed task // there is a version to go back to
	c.do(http.MethodPut, "/api/knowledge/documents/"+one.DocumentID, body, "Content-Type", kind).into(t, http.StatusAccepted, &renewed)
	require.Equal(t, "SUCCEEDED", c.ended(renewed.TaskID).Status)
	var preview task
	c.json(http.MethodPost, "/api/knowledge/preview?waitSeconds=60", `{"documentId":"`+one.DocumentID+`"}`).into(t, http.StatusOK, &preview)
	x := checked{t: t, c: c}
	x.done(`{}`) // in the list
	check := x.done(`{"history":true,"repair":true}`)
	return c, operator, []screen{
		{"home", "/"}, {"tasks", "/tasks"}, {"tasks-dead", "/tasks?status=DEAD"}, {"tasks-none", "/tasks?q=nothing"}, {"tasks-columns", "/tasks?col=base&col=channel&col=created"}, {"tasks-filter", "/tasks?filter=age%3C1h"},
		{"failures", "/failures"}, {"bulk", "/bulk?action=retry&filter=status:DEAD"}, {"operation", "/bulk/" + operation.OperationID},
		{"task", "/tasks/" + good.TaskID}, {"task-dead", "/tasks/" + dead.TaskID},
		{"documents", "/documents"}, {"document", "/documents/" + one.DocumentID}, {"bases", "/bases"}, {"base", "/bases/" + one.KnowledgeBaseID},
		{"upload", "/upload"}, {"preview-form", "/preview"}, {"preview", "/preview/" + preview.TaskID}, {"search", "/search"}, {"search-hits", "/search?q=otter"}, {"search-compare", "/search?q=otter&compare=legal"}, {"problem", "/tasks/nothing"},
		{"suspended", "/suspended"}, {"deadletters", "/deadletters"}, {"queues", "/queues"}, {"keys", "/keys"}, {"audit", "/audit"}, {"workers", "/workers"}, {"settings", "/settings"}, {"health", "/health"}, {"check", "/health/checks/" + check.CheckID},
	}
}

// failedMessages publishes to a topic of a program's own, whose consumer fails each message for good: they are its dead letters.
func failedMessages(t *testing.T, redisURL, topic string, keys ...string) {
	t.Helper()
	options, err := rueidis.ParseURL(redisURL)
	require.NoError(t, err)
	options.DisableCache = true
	client, err := rueidis.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	mq, err := streammq.New(client, streammq.NewDefaultConfig())
	require.NoError(t, err)
	_, err = mq.CreateTopic(t.Context(), streammq.Topic{Name: topic, Partitions: 2})
	require.NoError(t, err)
	for _, key := range keys {
		_, err := mq.NewProducer(nil).Publish(t.Context(), topic, streammq.Message{Key: key, Payload: []byte("payload of " + key), Headers: map[string]string{"x-note": key}})
		require.NoError(t, err)
	}
	failed := make(chan struct{}, len(keys))
	consumer, err := mq.NewSubscriber(streammq.NewDefaultSubscriberConfig(topic, "shop", func(_ context.Context, d *streammq.Delivery) streammq.Result {
		failed <- struct{}{}
		return streammq.DeadLetter(errors.New("no use: " + d.Key))
	}))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	for range keys {
		<-failed
	}
	stop()
	require.NoError(t, <-ended)
}

// Every screen, in either theme, wide and narrow, in either language, any two of them together: no rule of axe-core is broken, nothing is
// complained of, and nothing is wider than the window. Screenshots are kept.
func TestConsoleInChromium(t *testing.T) {
	t.Parallel()
	axe, err := installed.AxeScript()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(shots, 0o755))
	redis := labserver.RedisURL(t)
	failedMessages(t, redis, "returns", `"><img src=x onerror=alert(1)>`, "k2")
	client, operator, screens := furnished(t, "REDIS_URL="+redis)
	var letters page[struct{ ID string }]
	client.get("/internal/dlq/topics/returns/letters").into(t, http.StatusOK, &letters)
	screens = append(screens, screen{"queue", "/queues/returns"}, screen{"letters", "/queues/returns/letters"}, screen{"letter", "/queues/returns/letters/" + letters.Items[0].ID})
	c := newChrome(t, client.url)
	everyLook := func(t *testing.T, s screen) {
		for _, look := range []struct {
			width       int64
			theme, lang string
		}{{1280, "light", "en"}, {1280, "dark", "zh"}, {390, "light", "zh"}, {390, "dark", "en"}, {320, "light", "en"}} {
			c.look(look.lang + "." + look.theme + ".relative")
			c.do(emulation.SetDeviceMetricsOverride(look.width, 900, 1, look.width < 500))
			c.open(s.path)
			name := fmt.Sprintf("%s-%d-%s-%s", s.name, look.width, look.theme, look.lang)
			require.NotContains(t, c.text("main"), "%!", "%s", name)
			require.LessOrEqual(t, c.pageWidth(), look.width, "%s is wider than its window", name)
			said := c.complaints()
			if s.name == "problem" { // the page itself is the 404
				require.Len(t, said, 1, "%s", name)
				said = nil
			}
			require.Empty(t, said, "%s", name)
			var png []byte
			c.do(chromedp.FullScreenshot(&png, 100))
			require.NoError(t, os.WriteFile(filepath.Join(shots, name+".png"), png, 0o644))
			require.Empty(t, c.violations(axe), "%s", name)
			c.complaints() // of axe
		}
	}
	everyLook(t, screen{"login", "/login"})
	c.logIn(operator)
	for _, s := range screens {
		t.Run(s.name, func(t *testing.T) { // one browser, so one after the other
			c.t = t
			everyLook(t, s)
		})
	}
}

// By keys alone, from a failed task to its retry; rows stay up to date, and an ended session is told and hides nothing.
func TestConsoleByKeys(t *testing.T) {
	t.Parallel()
	client, operator, _ := furnished(t)
	c := newChrome(t, client.url)
	c.logIn(operator)
	c.open("/tasks")
	c.do(input.DispatchKeyEvent(input.KeyRawDown).WithKey("/")) // KeyEvent would type it too, although the page took it
	c.truth("/ goes to the query", `document.activeElement.name === "filter"`)
	c.do(chromedp.KeyEvent(`doc~"broken"` + kb.Enter))
	c.truth("the query is in the address", `new URL(location).searchParams.get("filter") === 'doc~"broken"' && document.readyState === "complete" && document.querySelectorAll("[data-row]").length === 1`)
	c.do(chromedp.KeyEvent("jx"))
	c.truth("x selects the row", `document.querySelectorAll("[data-row] input:checked").length === 1`)
	c.do(chromedp.KeyEvent("?"))
	c.truth("? helps", `document.getElementById("help").open`)
	c.do(chromedp.KeyEvent(kb.Escape))
	c.do(chromedp.KeyEvent(kb.Enter))
	c.truth("Enter opens the row", `location.pathname.includes("/tasks/") && document.readyState === "complete"`)
	c.do(chromedp.Evaluate(`document.querySelector(".acts button.primary").focus()`, nil), chromedp.KeyEvent(kb.Enter))
	c.truth("it is said that the task is queued again", `document.getElementById("notes").textContent.includes("queued again")`)
	c.truth("the page says by itself how it ends", `document.querySelector(".lead .st").textContent.includes("failed")`)
	require.Empty(t, c.complaints())

	c.open("/tasks")
	c.do(chromedp.Evaluate(`fetch("/console/logout", {method: "POST"}).then(() => true)`, nil,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	c.truth("the session's end is told", `document.getElementById("notes").textContent.includes("session has ended")`)
	require.Contains(t, c.text("#rows"), "broken.pdf")
}

// A file that is chosen is sent by the script, with its state and a link to its task, and shown again after a reload.
func TestConsoleUploadsFiles(t *testing.T) {
	t.Parallel()
	client, operator, _ := furnished(t)
	c := newChrome(t, client.url)
	c.logIn(operator)
	dir := t.TempDir()
	var paths []string
	for i := range 5 {
		path := filepath.Join(dir, fmt.Sprintf("page-%d.txt", i))
		require.NoError(t, os.WriteFile(path, prose(fmt.Sprint("granite", i), 3), 0o600))
		paths = append(paths, path)
	}
	client.accepted("granite.txt", prose("granite0", 3))
	c.open("/upload")
	c.do(chromedp.SetUploadFiles("input[type=file]", paths, chromedp.ByQuery), chromedp.Click("form.upload button.primary", chromedp.ByQuery))
	c.truth("all are accepted", `document.querySelectorAll("#progress a").length === 5`)
	require.Contains(t, c.text("#progress"), "page-3.txt\t✓ accepted")
	require.Contains(t, c.text("#progress"), "page-0.txt\t✓ was there already")
	c.do(chromedp.Reload(), chromedp.WaitReady("main"))
	c.truth("a reload shows them", `document.querySelectorAll("#rows [data-row]").length === 5`)
	c.truth("they end by themselves", `[...document.querySelectorAll("#rows .st")].every((s) => s.textContent.includes("succeeded"))`)
	require.Empty(t, c.complaints())
}

// Without a script a file is sent for a preview, and its page says what would become of it.
func TestConsolePreviewsWithoutScript(t *testing.T) {
	t.Parallel()
	_, client := startDev(t)
	c := newChrome(t, client.url)
	c.do(emulation.SetScriptExecutionDisabled(true))
	file := filepath.Join(t.TempDir(), "mill.md")
	require.NoError(t, os.WriteFile(file, append([]byte("# The mill\n\n"), prose("granite", 40)...), 0o600))
	c.open("/preview")
	c.do(chromedp.SetUploadFiles("input[type=file]", []string{file}, chromedp.ByQuery),
		chromedp.SetAttributeValue("select[name=chunking] option:nth-child(2)", "selected", "", chromedp.ByQuery),
		chromedp.Click("form.upload button.primary", chromedp.ByQuery), chromedp.WaitReady("#preview"))
	eventually(t, "the preview is there", func() bool {
		c.do(chromedp.Reload(), chromedp.WaitReady("main"))
		return strings.Contains(c.text("#preview"), "The first segments")
	})
	shown := c.text("#preview")
	require.Contains(t, shown, "To be paid for:")
	require.Contains(t, shown, "Paragraph 0")
	require.Contains(t, shown, "160", "the size that was chosen")
	require.Empty(t, c.complaints())
}

// The page of a segment is one click away: the browser's viewer shows the file there, under the policy of the API. It asks for an
// icon at the root of the host, as it does for every file that is no page; there is none.
func TestConsoleOpensThePageOfASegment(t *testing.T) {
	t.Parallel()
	_, client := startDev(t)
	document := client.ended(client.accepted("pages.pdf", sample{File: "pdf_libreoffice_cjk.pdf"}.content(t)).TaskID).DocumentID
	c := newChrome(t, client.url)
	c.open("/documents/" + document)
	c.click(`.segments li:last-child .from strong a`)
	c.truth("the browser shows the file", `document.contentType === "application/pdf" && location.hash === "#page=1"`)
	require.Empty(t, slices.DeleteFunc(c.complaints(), func(said string) bool { return strings.HasSuffix(said, client.url+"/favicon.ico") }))
	var png []byte
	c.do(chromedp.CaptureScreenshot(&png))
	require.NoError(t, os.MkdirAll(shots, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(shots, "file.png"), png, 0o644))
}

// Twelve tabs of one browser follow a task with one stream between them: what it says reaches all of them, none of which asks by
// itself here; and when the tab that has the stream is closed, another one has it.
func TestConsoleInTwelveTabs(t *testing.T) {
	t.Parallel()
	_, client := startDev(t, "EMBEDDING_BASE_URL="+sternEmbedder(t, "no"), "EMBEDDING_MODEL=test", "EMBEDDING_API=openai",
		"INGEST_REDIS_RETRY_BASE_BACKOFF_MS=600000", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=600000")
	waiting := client.reaches(client.accepted("slow.txt", []byte("basalt")).TaskID, "RETRYING")
	c := newChrome(t, client.url)
	type tab struct {
		ctx   context.Context
		close func()
	}
	var tabs []tab
	for range 12 {
		ctx, cancel := chromedp.NewContext(c.ctx)
		defer cancel()
		require.NoError(t, chromedp.Run(ctx))
		within, done := context.WithTimeout(ctx, waitLimit)
		defer done()
		require.NoError(t, chromedp.Run(within, chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := cdppage.AddScriptToEvaluateOnNewDocument("window.setInterval = () => 1").Do(ctx)
			return err
		}), chromedp.Navigate(c.url+"/console/tasks/"+waiting.TaskID), chromedp.WaitReady("main")))
		tabs = append(tabs, tab{ctx, cancel})
	}
	streams := func() string {
		_, rest, _ := strings.Cut(string(client.get("/metrics").body), "\ningest_api_event_clients ")
		n, _, _ := strings.Cut(rest, "\n")
		return n
	}
	all := func(word string) {
		t.Helper()
		for i, tab := range tabs {
			eventually(t, fmt.Sprintf("tab %d says %s", i, word), func() bool {
				var text string // read in one step: the page may put another node in its place at any time
				err := chromedp.Run(tab.ctx, chromedp.Evaluate(`document.querySelector(".lead .st")?.textContent ?? ""`, &text))
				return err == nil && strings.Contains(text, word)
			})
		}
	}
	eventually(t, "a tab streams", func() bool { return streams() == "1" })
	all("retrying")
	client.json(http.MethodPost, "/internal/tasks/"+waiting.TaskID+"/suspend", `{"reason":"a look"}`).into(t, http.StatusOK, nil)
	all("suspended")
	require.Equal(t, "1", streams())
	tabs[0].close() // the first one came first to the lock
	tabs = tabs[1:]
	eventually(t, "another tab streams", func() bool { return streams() == "1" })
	client.json(http.MethodPost, tasks+"/"+waiting.TaskID+"/cancel", "").into(t, http.StatusOK, nil)
	all("cancelled")
	eventually(t, "nobody streams what has ended", func() bool { return streams() == "0" })
}
