package apidoc

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// docsStyle is the page's only style; the page's policy allows it by its hash and nothing else: no script, no foreign file.
const docsStyle = `body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #ccc}summary{cursor:pointer;padding:.3rem 0}
code,pre{font:14px/1.4 ui-monospace,monospace;background:#f3f3f3;border-radius:3px}code{padding:0 .2em}pre{padding:.6rem;overflow:auto}
.m{display:inline-block;min-width:4.5rem;font-weight:600}table{border-collapse:collapse;margin:.5rem 0}td,th{text-align:left;vertical-align:top;padding:.15rem .8rem .15rem 0}
details{border-bottom:1px solid #eee}p.d{white-space:pre-line}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}code,pre{background:#262626}details{border-color:#333}a{color:#8ab4f8}}`

// SendPage sends the page.
func (d *Document) SendPage(c *gin.Context) error {
	sum := sha256.Sum256([]byte(docsStyle))
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", fmt.Sprintf(
		"default-src 'none'; style-src 'sha256-%s'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'", base64.StdEncoding.EncodeToString(sum[:])))
	h.Set("Cache-Control", "public, no-cache")
	web.Write(c, "text/html; charset=utf-8", http.StatusOK, d.page())
	return nil
}

// page builds the HTML; every text of the description goes through html.EscapeString.
type page struct{ strings.Builder }

func (p *page) add(format string, plain ...string) {
	escaped := make([]any, len(plain))
	for i, t := range plain {
		escaped[i] = html.EscapeString(t)
	}
	fmt.Fprintf(&p.Builder, format, escaped...)
}

// docsPage renders the description: operations by tag, the schemas, the error codes.
func docsPage(root Object) []byte {
	info := Child(root, "info")
	p := &page{}
	p.add("<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\"><title>%s API</title>", Text(info, "title"))
	p.WriteString("<style>" + docsStyle + "</style>")
	p.add("<h1>%s API</h1><p>%s Version %s. <a href=\"openapi.json\">openapi.json</a></p><p class=d>%s</p>",
		Text(info, "title"), Text(info, "summary"), Text(info, "version"), Text(info, "description"))
	tags, _ := root["tags"].([]any)
	for _, t := range tags {
		tag, _ := t.(Object)
		p.add("<h2>%s</h2><p>%s</p>", Text(tag, "name"), Text(tag, "description"))
		p.operations(root, Text(tag, "name"))
	}
	p.WriteString("<h2>Schemas</h2>")
	schemas := Child(Child(root, "components"), "schemas")
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		if name != "ErrorCode" {
			p.add("<details><summary>%s</summary><pre>%s</pre></details>", name, pretty(schemas[name]))
		}
	}
	p.WriteString("<h2>Errors</h2><table><tr><th>Code<th>Status<th>What it means<th>What to do")
	for _, code := range slices.Sorted(maps.Keys(web.Kinds)) {
		kind := web.Kinds[code]
		p.add("<tr><td><code>%s</code><td>%s<td>%s<td>%s", code, strconv.Itoa(kind.Status), kind.Message, kind.Remedy)
	}
	p.WriteString("</table></html>\n")
	return []byte(p.String())
}

// operations renders those of one tag, by path.
func (p *page) operations(root Object, tag string) {
	paths := Child(root, "paths")
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		all := Operations(paths[path])
		for _, method := range methods {
			if op, ok := all[method]; ok && slices.Contains(Texts(op["tags"]), tag) {
				p.operation(root, path, method, op)
			}
		}
	}
}

func (p *page) operation(root Object, path, method string, op Object) {
	p.add("<details><summary><span class=m>%s</span><code>%s</code> %s</summary>", strings.ToUpper(method), path, Text(op, "summary"))
	if d := Text(op, "description"); d != "" {
		p.add("<p class=d>%s</p>", d)
	}
	item, _ := Child(root, "paths")[path].(Object)
	shared, _ := item["parameters"].([]any)
	own, _ := op["parameters"].([]any)
	if params := slices.Concat(shared, own); len(params) > 0 {
		p.WriteString("<table><tr><th>Parameter<th>In<th>Form<th>")
		for _, param := range params {
			o := Resolve(root, param)
			p.add("<tr><td><code>%s</code><td>%s<td><code>%s</code><td>%s", Text(o, "name"), Text(o, "in"), compact(o["schema"]), Text(o, "description"))
		}
		p.WriteString("</table>")
	}
	if body, ok := op["requestBody"].(Object); ok {
		p.add("<p>Body: <code>%s</code></p>", compact(body["content"]))
	}
	p.WriteString("<table><tr><th>Status<th>Answer")
	responses := Child(op, "responses")
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		r, _ := responses[status].(Object)
		p.add("<tr><td>%s<td>%s", status, Text(r, "description"))
	}
	p.WriteString("</table></details>")
}

// Resolve follows a reference to a shared parameter.
func Resolve(root Object, v any) Object {
	o, _ := v.(Object)
	if ref, ok := o["$ref"].(string); ok {
		o = root
		for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			o = Child(o, step)
		}
	}
	return o
}

func Text(o Object, key string) string {
	s, _ := o[key].(string)
	return strings.TrimSpace(s)
}

func Texts(v any) []string {
	items, _ := v.([]any)
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = fmt.Sprint(item)
	}
	return out
}

func compact(v any) string { return strings.TrimSpace(string(web.Render(v))) }

func pretty(v any) string {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("gateway: render " + err.Error())
	}
	return string(out)
}
