package gateway

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
)

// docsStyle is the page's only style; the page's policy allows it by its hash and nothing else: no script, no foreign file.
const docsStyle = `body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #ccc}summary{cursor:pointer;padding:.3rem 0}
code,pre{font:14px/1.4 ui-monospace,monospace;background:#f3f3f3;border-radius:3px}code{padding:0 .2em}pre{padding:.6rem;overflow:auto}
.m{display:inline-block;min-width:4.5rem;font-weight:600}table{border-collapse:collapse;margin:.5rem 0}td,th{text-align:left;vertical-align:top;padding:.15rem .8rem .15rem 0}
details{border-bottom:1px solid #eee}p.d{white-space:pre-line}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}code,pre{background:#262626}details{border-color:#333}a{color:#8ab4f8}}`

// sendPage sends the page.
func (d *document) sendPage(c *gin.Context) error {
	sum := sha256.Sum256([]byte(docsStyle))
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", fmt.Sprintf(
		"default-src 'none'; style-src 'sha256-%s'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'", base64.StdEncoding.EncodeToString(sum[:])))
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(d.page)))
	h.Set("Cache-Control", "public, no-cache")
	allowWrite(c)
	c.Writer.WriteHeader(http.StatusOK)
	_, _ = c.Writer.Write(d.page)
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
func docsPage(root object) []byte {
	info := child(root, "info")
	p := &page{}
	p.add("<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\"><title>%s API</title>", text(info, "title"))
	p.WriteString("<style>" + docsStyle + "</style>")
	p.add("<h1>%s API</h1><p>%s Version %s. <a href=\"/openapi.json\">openapi.json</a></p><p class=d>%s</p>",
		text(info, "title"), text(info, "summary"), text(info, "version"), text(info, "description"))
	tags, _ := root["tags"].([]any)
	for _, t := range tags {
		tag, _ := t.(object)
		p.add("<h2>%s</h2><p>%s</p>", text(tag, "name"), text(tag, "description"))
		p.operations(root, text(tag, "name"))
	}
	p.WriteString("<h2>Schemas</h2>")
	schemas := child(child(root, "components"), "schemas")
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		if name != "ErrorCode" {
			p.add("<details><summary>%s</summary><pre>%s</pre></details>", name, pretty(schemas[name]))
		}
	}
	p.WriteString("<h2>Errors</h2><table><tr><th>Code<th>Status<th>What it means<th>What to do")
	for _, code := range slices.Sorted(maps.Keys(kinds)) {
		kind := kinds[code]
		p.add("<tr><td><code>%s</code><td>%s<td>%s<td>%s", code, strconv.Itoa(kind.Status), kind.Message, kind.Remedy)
	}
	p.WriteString("</table></html>\n")
	return []byte(p.String())
}

// operations renders those of one tag, by path.
func (p *page) operations(root object, tag string) {
	paths := child(root, "paths")
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		all := operations(paths[path])
		for _, method := range []string{"get", "post", "put", "delete"} {
			if op, ok := all[method]; ok && slices.Contains(texts(op["tags"]), tag) {
				p.operation(root, path, method, op)
			}
		}
	}
}

func (p *page) operation(root object, path, method string, op object) {
	p.add("<details><summary><span class=m>%s</span><code>%s</code> %s</summary>", strings.ToUpper(method), path, text(op, "summary"))
	if d := text(op, "description"); d != "" {
		p.add("<p class=d>%s</p>", d)
	}
	item, _ := child(root, "paths")[path].(object)
	shared, _ := item["parameters"].([]any)
	own, _ := op["parameters"].([]any)
	if params := slices.Concat(shared, own); len(params) > 0 {
		p.WriteString("<table><tr><th>Parameter<th>In<th>Form<th>")
		for _, param := range params {
			o := resolve(root, param)
			p.add("<tr><td><code>%s</code><td>%s<td><code>%s</code><td>%s", text(o, "name"), text(o, "in"), compact(o["schema"]), text(o, "description"))
		}
		p.WriteString("</table>")
	}
	if body, ok := op["requestBody"].(object); ok {
		p.add("<p>Body: <code>%s</code></p>", compact(body["content"]))
	}
	p.WriteString("<table><tr><th>Status<th>Answer")
	responses := child(op, "responses")
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		r, _ := responses[status].(object)
		p.add("<tr><td>%s<td>%s", status, text(r, "description"))
	}
	p.WriteString("</table></details>")
}

// resolve follows a reference to a shared parameter.
func resolve(root object, v any) object {
	o, _ := v.(object)
	if ref, ok := o["$ref"].(string); ok {
		o = root
		for _, step := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			o = child(o, step)
		}
	}
	return o
}

func text(o object, key string) string {
	s, _ := o[key].(string)
	return strings.TrimSpace(s)
}

func texts(v any) []string {
	items, _ := v.([]any)
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = fmt.Sprint(item)
	}
	return out
}

func compact(v any) string { return strings.TrimSpace(string(render(v))) }

func pretty(v any) string {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("gateway: render " + err.Error())
	}
	return string(out)
}
