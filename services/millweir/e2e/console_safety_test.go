package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
)

// Whatever breaks the policy of a page is among the complaints that the tests of the console ask for: without that they would prove
// nothing. Each breach is planted by a script in the page, where a hole in a template would put it.
func TestBreachesOfThePolicyAreComplaints(t *testing.T) {
	t.Parallel()
	_, client := startDev(t)
	c := newChrome(t, client.url)
	c.open("/")
	require.Empty(t, c.complaints())
	for _, breach := range []struct{ name, script, word string }{
		{"HTML from text", `document.querySelector("main").innerHTML = "<b>otter</b>"`, "TrustedHTML"},
		{"an address of a script", `document.createElement("script").src = "/x.js"`, "TrustedScriptURL"},
		{"a script in the page", `{const s = document.createElement("b"); s.setAttribute("onclick", "1"); document.body.append(s)}`, "Trusted"},
		{"a picture of another host", `document.body.append(Object.assign(new Image(), {src: "http://127.0.0.2:9/x.png"}))`, "img-src"},
		{"a request to another host", `fetch("http://127.0.0.2:9/").catch(() => {})`, "connect-src"},
		{"a style in the page", `document.body.setAttribute("style", "color: red")`, "style-src"},
		{"a frame", `document.body.append(Object.assign(document.createElement("iframe"), {src: "/console/"}))`, "frame"},
	} {
		c.open("/")
		c.do(chromedp.Evaluate("setTimeout(() => {"+breach.script+"}, 0); 0", nil))
		said := ""
		eventually(t, breach.name, func() bool {
			said += strings.Join(c.complaints(), "\n")
			return strings.Contains(said, breach.word)
		})
	}
}

// hostiles are texts that run, break out of where they stand or disguise themselves when a page takes them for more than text.
func hostiles() map[string]string {
	return map[string]string{
		"script":    `<script>alert(1)<-script>`,
		"attribute": `"><img src=x onerror=alert(1)>`,
		"quote":     `' onmouseover=alert(1) autofocus onfocus=alert(1) x='`,
		"closing":   `--><svg onload=alert(1)><style>*{display:none}<title>`,
		"link":      `javascript:alert(document.cookie)`,
		"template":  `{{.Who}}{{template "layout"}}${7*7}#{7*7}<%= 7*7 %>`,
		"bidi":      "invoice\u202efdp.exe\u2066\u200f",
		"long":      "W" + strings.Repeat("w", 10<<10),
	}
}

// fit cuts a text to the characters that a field takes.
func fit(text string, most int) string {
	runes := []rune(text)
	return string(runes[:min(len(runes), most)])
}

// noScript is true on a page that has no element, attribute and address but those of the console's own templates.
const noScript = `document.scripts.length === 1 && !document.querySelector("img, iframe, object, embed, style, base, [style]") &&
	[...document.querySelectorAll("*")].every((e) => e.getAttributeNames().every((n) => !n.startsWith("on"))) &&
	[...document.links].every((a) => ["http:", "https:"].includes(a.protocol)) &&
	[...document.forms].every((f) => new URL(f.getAttribute("action") ?? "", location).origin === location.origin)`

// sternEmbedder computes vectors, and refuses texts with the word basalt in the given words.
func sternEmbedder(t *testing.T, words string) string {
	t.Helper()
	target, err := neturl.Parse(embedtest.Start(t, embedtest.Options{}).URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && bytes.Contains(body, []byte("basalt")) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Should-Retry", "false")
			w.WriteHeader(http.StatusInternalServerError)
			_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": words, "type": "test_error"}})
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// jsonOf is a value as JSON.
func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// Hostile texts as file names, titles, metadata, document texts, base names, errors, user ids, key names, view names, reasons
// and addresses: on every screen no script runs, the policy has nothing to report, nothing is wider than the window, and the texts
// can be read (A27).
func TestConsoleShowsHostileTextsInChromium(t *testing.T) {
	t.Parallel()
	told := `<img src=x onerror=alert(2)> "'\u202e {{.Who}} ` + strings.Repeat("x", 600)
	data := t.TempDir()
	env := []string{"AUTH_MODE=keys", "EMBEDDING_BASE_URL=" + sternEmbedder(t, told), "EMBEDDING_MODEL=test", "EMBEDDING_API=openai", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=600000", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=600000"}
	p := start(t, "dev", env, "--data", data, "--addr", "127.0.0.1:0")
	url := p.printed(`ready (http://\S+)`)
	operator := newKey(t, "DATABASE_URL=sqlite:"+filepath.Join(data, "millweir.db"), "--user", `root"><img src=x onerror=alert(1)>`, "--role", "operator")
	client := newClient(t, url).as(operator)
	paths := []string{"/", "/tasks", "/failures", "/bulk", "/documents", "/bases", "/upload", "/suspended", "/deadletters", "/queues", "/keys", "/audit", "/workers", "/settings", "/health"}
	one := map[string]string{} // a page that shows the text as a file's name
	for name, text := range hostiles() {
		q := neturl.QueryEscape(fit(text, 150))
		base := client.newBase(name + fit(text, 110))
		body := "otter " + text + "\n\n<script>alert(3)</script> <img src=x onerror=alert(3)>\n\n" + name
		good := client.ended(client.accepted(fit(text, 150)+".txt", []byte(body), "knowledgeBase", base, "title", fit(text, 150),
			"metadata", jsonOf(t, map[string]string{"note": fit(text, 150)})).TaskID)
		require.Equal(t, "SUCCEEDED", good.Status, "%s: %+v", name, good)
		bad := client.accepted("b"+fit(text, 150)+".txt", []byte("basalt "+body))
		require.Equal(t, "RETRYING", client.reaches(bad.TaskID, "RETRYING").Status)
		id := strings.Map(func(r rune) rune {
			if r == '\u202e' || r == '\u2066' || r == '\u200f' { // which no user id has
				return -1
			}
			return r
		}, fit(text, 150))
		client.json(http.MethodPost, "/internal/keys", jsonOf(t, map[string]any{"userId": id, "name": fit(text, 60), "scopes": []string{"read"}})).into(t, http.StatusCreated, nil)
		client.json(http.MethodPost, "/api/knowledge/views", jsonOf(t, map[string]any{"name": fit(text, 90), "filter": "error~" + jsonOf(t, fit(text, 60))})).into(t, http.StatusOK, nil)
		var operation struct {
			OperationID string `json:"operationId"`
		}
		client.json(http.MethodPost, "/api/knowledge/bulk", jsonOf(t, map[string]any{"action": "suspend", "filter": "kb:" + base + " status:RETRYING", "reason": fit(text, 150)})).
			into(t, http.StatusAccepted, &operation)
		client.json(http.MethodPost, "/internal/tasks/"+bad.TaskID+"/suspend", jsonOf(t, map[string]string{"reason": fit(text, 150)})).into(t, http.StatusOK, nil)
		one[name] = "/documents/" + good.DocumentID
		paths = append(paths, one[name], "/bases/"+base, "/tasks/"+good.TaskID, "/tasks/"+bad.TaskID, "/bulk/"+operation.OperationID,
			"/search?q="+q, "/search?q=otter&knowledgeBase="+neturl.QueryEscape(base), "/documents?q="+q, "/documents?knowledgeBase="+base, "/tasks?q="+q, "/tasks?filter="+q,
			"/tasks?filter=doc~"+neturl.QueryEscape(jsonOf(t, fit(text, 60))), "/bulk?action=retry&reason="+q+"&filter="+q, "/upload?knowledgeBase="+q,
			"/tasks/"+neturl.PathEscape(fit(text, 150)), "/bases/"+neturl.PathEscape(fit(text, 150)), "/login?next="+q, "/audit?actor="+q, "/deadletters?error="+q)
	}
	c := newChrome(t, url)
	c.logIn(operator)
	const width = 390
	c.do(emulation.SetDeviceMetricsOverride(width, 900, 1, true))
	shown := strings.Builder{}
	for _, path := range paths {
		c.open(path)
		for _, line := range c.complaints() { // a page may be a 404 or a 422, which Chromium tells
			require.Contains(t, line, "the server responded with a status of 4", "%s", path)
		}
		var clean bool
		var text string
		c.do(chromedp.Evaluate(noScript, &clean), chromedp.Evaluate("document.body.innerText", &text))
		require.True(t, clean, "%s: %s", path, text)
		require.LessOrEqual(t, c.pageWidth(), int64(width), "%s is wider than its window", path)
		require.NotContains(t, text, "root{", "%s", path)
		shown.WriteString(text)
	}
	for name, text := range hostiles() {
		require.Contains(t, shown.String(), name+fit(text, 60), "a base's name: %s", name)
		c.open(one[name])
		require.Contains(t, c.text("h1"), fit(text, 60), "%s", name)
		require.Contains(t, c.text(".segments"), fit(text, 150), "%s", name)
	}
	require.Contains(t, shown.String(), `<img src=x onerror=alert(2)>`, "the error of the embedding service")

	dir := t.TempDir()
	files := []string{}
	for _, text := range hostiles() {
		path := filepath.Join(dir, "up"+fit(text, 150)+".txt")
		require.NoError(t, os.WriteFile(path, []byte("otter\n"+text), 0o600))
		files = append(files, path)
	}
	c.open("/upload") // rows that the script makes
	c.do(chromedp.SetUploadFiles("input[type=file]", files, chromedp.ByQuery), chromedp.Click("form.upload button.primary", chromedp.ByQuery))
	c.truth("all are accepted", fmt.Sprintf(`document.querySelectorAll("#progress a").length === %d`, len(files)))
	c.truth("nothing of their names is more than text", noScript)
	require.Empty(t, c.complaints())
}

// seen is the text and the source of a page.
func (c *chrome) seen(path string) string {
	c.t.Helper()
	c.open(path)
	var text string
	c.do(chromedp.Evaluate("document.documentElement.outerHTML", &text))
	return text
}

// Two users in two browsers beside each other: neither sees a name, a text, an id or a count of the other's, on any screen, not at
// the other's own addresses either.
func TestConsoleOfTwoTenants(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, "dev", []string{"AUTH_MODE=keys"}, "--data", data, "--addr", "127.0.0.1:0")
	url := p.printed(`ready (http://\S+)`)
	type tenant struct {
		*chrome
		word  string   // in all that is theirs
		ids   []string // of theirs
		paths []string // where theirs is shown
	}
	var tenants []*tenant
	for _, word := range []string{"alderfly", "buttercup"} {
		key := newKey(t, "DATABASE_URL=sqlite:"+filepath.Join(data, "millweir.db"), "--user", word)
		client := newClient(t, url).as(key)
		base := client.newBase(word + "-base")
		good := client.ingested(word+".txt", prose(word, 2), "knowledgeBase", base, "title", word+" title")
		bad := client.ended(client.accepted(word+".pdf", []byte("%PDF-1.7 "+word)).TaskID)
		require.Equal(t, "DEAD", bad.Status)
		client.json(http.MethodPost, "/api/knowledge/views", `{"name":"`+word+` view","filter":"status:DEAD"}`).into(t, http.StatusOK, nil)
		var operation struct {
			OperationID string `json:"operationId"`
		}
		client.json(http.MethodPost, "/api/knowledge/bulk", `{"action":"retry","filter":"status:DEAD","reason":"`+word+` reason"}`).into(t, http.StatusAccepted, &operation)
		c := newChrome(t, url)
		c.logIn(key)
		tenants = append(tenants, &tenant{c, word, []string{base, good.DocumentID, good.TaskID, bad.TaskID, operation.OperationID}, []string{
			"/documents/" + good.DocumentID, "/bases/" + base, "/tasks/" + good.TaskID, "/tasks/" + bad.TaskID, "/bulk/" + operation.OperationID,
		}})
	}
	screens := []string{
		"/", "/tasks", "/tasks?status=DEAD", "/tasks?filter=status:DEAD", "/failures", "/bulk", "/bulk?action=retry&filter=status:DEAD", "/documents", "/bases", "/upload", "/search?q=",
	}
	for i, me := range tenants {
		other := tenants[1-i]
		for _, path := range append(screens, "/search?q=otter", "/search?q="+other.word, "/tasks?q="+other.word, "/documents?q="+other.word, "/upload?task="+other.ids[2]) {
			page := strings.ReplaceAll(me.seen(path), `value="`+other.word+`"`, "") // what was typed
			page = strings.ReplaceAll(page, "q%3D"+other.word, "")
			page = strings.ReplaceAll(page, "q="+other.word, "")
			page = strings.ReplaceAll(page, "filter=%22"+other.word+"%22", "") // of the facets, which keep the query
			page = strings.ReplaceAll(page, "task="+other.ids[2], "")
			page = strings.ReplaceAll(page, "task%3D"+other.ids[2], "")
			page = strings.ReplaceAll(page, `"query":"`+other.word, "")
			page = strings.ReplaceAll(page, `\"query\":\"`+other.word, "")
			page = strings.ReplaceAll(page, `search '`+other.word, "")
			page = strings.ReplaceAll(page, `&quot;query&quot;:&quot;`+other.word, "")
			require.NotContains(t, page, other.word, "%s sees %s", me.word, path)
			for _, id := range other.ids {
				require.NotContains(t, page, id, "%s sees %s", me.word, path)
			}
		}
		require.Empty(t, me.complaints())
		for _, path := range other.paths {
			page := me.seen(path)
			require.Contains(t, page, "NOT_FOUND", "%s sees %s", me.word, path)
			require.NotContains(t, page, other.word, "%s sees %s", me.word, path)
		}
		me.complaints() // of the 404s
		for _, path := range me.paths {
			require.Contains(t, me.seen(path), me.word, "what is theirs is shown")
		}
		for _, path := range []string{"/keys", "/audit", "/queues", "/suspended", "/settings", "/workers", "/deadletters"} {
			require.Contains(t, me.seen(path), "FORBIDDEN", "%s sees %s", me.word, path)
		}
	}
}

// The separate services serve the same console: a gateway, workers and a reclaimer over Postgres and Redis. Every screen is there, and a
// failed document is retried from it.
func TestConsoleOfSeparateServices(t *testing.T) {
	t.Parallel()
	database := "DATABASE_URL=" + labserver.PostgresDatabase(t)
	migrate(t, database)
	embeddings := embedtest.Start(t, embedtest.Options{})
	env := []string{
		database, "AUTH_MODE=keys", "REDIS_URL=" + labserver.RedisURL(t), "CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""),
		"EMBEDDING_BASE_URL=" + embeddings.URL, "EMBEDDING_MODEL=test", "EMBEDDING_API=openai", "INGEST_REDIS_MAX_ATTEMPTS=1",
	}
	client := fleet(t, env, 2)
	operator := newKey(t, database, "--user", "root", "--role", "operator")
	client = client.as(operator)
	good := client.ingested("mills.txt", prose("granite", 2))
	embeddings.Set(embedtest.Fault{Kind: embedtest.Refuse})
	dead := client.ended(client.accepted("dead.txt", prose("jasper", 1)).TaskID)
	require.Equal(t, "DEAD", dead.Status)
	eventually(t, "its dead letter is written, which may come after its death", func() bool {
		var letters page[struct{}]
		client.get("/internal/dlq").into(t, http.StatusOK, &letters)
		return len(letters.Items) == 1
	})
	embeddings.Clear()
	c := newChrome(t, client.url)
	c.logIn(operator)
	for path, shows := range map[string]string{
		"/": "1", "/tasks": "mills.txt", "/failures": "EMBED", "/documents": "mills.txt", "/documents/" + good.DocumentID: "granite", "/bases": "default",
		"/search?q=granite": "granite", "/tasks/" + dead.TaskID: "EMBED", "/queues": "deliveries", "/deadletters": "Replay", "/workers": "stream-worker", "/settings": "HTTP_ADDR",
		"/health": "database", "/keys": "root", "/audit": "root", "/suspended": "", "/bulk?action=retry&filter=status:DEAD": "1", "/upload": "PDF",
	} {
		require.Contains(t, strings.ToLower(c.seen(path)), strings.ToLower(shows), "%s", path)
		require.Empty(t, c.complaints(), "%s", path)
	}
	c.open("/tasks/" + dead.TaskID)
	c.click(".acts button.primary")
	c.truth("it ends well, and the page says so by itself", `document.querySelector(".lead .st")?.textContent.includes("succeeded")`)
	require.Empty(t, c.complaints())
}

// Somebody who has read nothing gets from the start page of a new installation to "I know why this PDF failed and I retried it" in four
// clicks, with the upload; who comes later needs three.
func TestNewcomerFindsOutAndRetriesInFourClicks(t *testing.T) {
	t.Parallel()
	_, client := startDev(t)
	c := newChrome(t, client.url)
	c.do(emulation.SetLocaleOverride().WithLocale("en-US"))
	clicks := 0
	click := func(expression string) { // a link or a button that is on the screen, found by the words on it
		c.pressed(expression)
		clicks++
	}
	named := func(words string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("main a, main button")].find((e) => e.textContent.trim() === %q)`, words)
	}
	broken := filepath.Join(t.TempDir(), "invoice.pdf")
	require.NoError(t, os.WriteFile(broken, []byte("%PDF-1.7\nthis is no PDF"), 0o600))
	knows := func(attempts int) {
		c.truth("the page says by itself that it failed", fmt.Sprintf(`document.querySelector(".explain .st")?.textContent.includes("failed") &&
			[...document.querySelectorAll("section")].find((s) => s.querySelector("h2")?.textContent === "Attempts")?.querySelectorAll("tbody tr").length === %d`, attempts))
		require.Contains(t, c.text("h1"), "invoice.pdf", "which file")
		why := c.text(".explain")
		require.Contains(t, why, "open the pdf", "what is wrong")
		require.Contains(t, why, "Next", "what to do")
	}

	c.open("/")
	click(named("Upload documents"))
	c.truth("the form is there", `Boolean(document.querySelector("[data-upload]")) && document.readyState === "complete"`)
	c.do(chromedp.SetUploadFiles("input[type=file]", []string{broken}, chromedp.ByQuery))
	click(named("Upload"))
	click(`document.querySelector("#progress a")`)
	knows(1)
	click(named("Retry"))
	c.truth("it was retried", `document.getElementById("notes").textContent.includes("queued again")`)
	require.LessOrEqual(t, clicks, 4)

	knows(2) // it fails once more
	clicks = 0
	c.open("/")
	click(`document.querySelector("#home .why a")`)
	click(`document.querySelector("#rows tr a")`)
	knows(2)
	click(named("Retry"))
	c.truth("it was retried", `document.getElementById("notes").textContent.includes("queued again")`)
	require.LessOrEqual(t, clicks, 3)
	require.Empty(t, c.complaints())
}
