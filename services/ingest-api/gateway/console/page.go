package console

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/console/chinese"
)

// page is one request for a page, and what its template sees.
type page struct {
	h       *Handler
	w       http.ResponseWriter
	r       *http.Request
	visit   Visit
	secret  string // of the session
	tls     bool   // the browser's connection is
	prefix  string // of a proxy, before Path
	now     time.Time
	form    url.Values // of a POST that is not an upload
	refusal *Refusal   // nil: all is well

	Who     auth.Principal
	Look    look
	Title   string
	Section string // of the navigation
	Data    any
}

// look is how a person wants to see the console; it is kept in a cookie.
type look struct {
	Lang  string // en, zh
	Theme string // auto, light, dark
	UTC   bool   // times in full and in UTC, not relative to now
}

const lookCookie = "millweir-look"

// lookOf reads the cookie, and else what the browser says of languages.
func lookOf(r *http.Request) look {
	l := look{Lang: "en", Theme: "auto"}
	for _, said := range strings.Split(r.Header.Get("Accept-Language"), ",") {
		tag := strings.ToLower(strings.TrimSpace(said))
		if strings.HasPrefix(tag, "zh") {
			l.Lang = "zh"
		}
		if strings.HasPrefix(tag, "zh") || strings.HasPrefix(tag, "en") {
			break
		}
	}
	if c, err := r.Cookie(lookCookie); err == nil {
		for _, word := range strings.Split(c.Value, ".") {
			l.set(word)
		}
	}
	return l
}

// set takes one wish; a word that it does not know changes nothing.
func (l *look) set(word string) {
	switch word {
	case "en", "zh":
		l.Lang = word
	case "auto", "light", "dark":
		l.Theme = word
	case "utc", "relative":
		l.UTC = word == "utc"
	}
}

// String is the cookie's value.
func (l look) String() string {
	times := "relative"
	if l.UTC {
		times = "utc"
	}
	return l.Lang + "." + l.Theme + "." + times
}

func (h *Handler) setLook(p *page) error {
	if err := p.readForm(); err != nil {
		return err
	}
	p.Look.set(p.form.Get("set"))
	http.SetCookie(p.w, &http.Cookie{
		Name: lookCookie, Value: p.Look.String(), Path: p.prefix + Path, MaxAge: 365 * 24 * 3600,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: p.tls,
	})
	p.redirect(next(p.form.Get("back")), nil)
	return nil
}

func (h *Handler) newPage(w http.ResponseWriter, r *http.Request) *page {
	v := visitOf(r.Context())
	return &page{
		h: h, w: w, r: r, visit: v, now: h.cfg.Now(), Look: lookOf(r), tls: v.TLS(), prefix: v.Prefix(),
	}
}

// render writes a page.
func (p *page) render(status int, name, title string, data any) error {
	p.Title, p.Data = title, data
	if p.Section == "" {
		p.Section = name
	}
	var out bytes.Buffer
	if err := p.h.pages[name].ExecuteTemplate(&out, "layout", p); err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}
	header := p.w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(out.Len()))
	header.Set("Vary", "Accept-Language, Cookie")
	header.Set("Referrer-Policy", "same-origin")
	p.w.WriteHeader(status)
	_, _ = p.w.Write(out.Bytes()) // a browser that is gone is seen by the connection
	return nil
}

// show writes a page that is as it should be.
func (p *page) show(name, title string, data any) error {
	return p.render(http.StatusOK, name, title, data)
}

// redirect leads to another page of ours, with a GET.
func (p *page) redirect(path string, q url.Values) {
	target := p.Link(path)
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	p.w.Header().Set("Location", target)
	p.w.WriteHeader(http.StatusSeeOther)
}

// done leads back to the page that a form was on, which says what was done.
func (p *page) done(what, otherwise string) error {
	back := p.form.Get("back")
	if back == "" {
		back = otherwise
	}
	u, err := url.Parse(next(back))
	if err != nil {
		return err
	}
	q := u.Query()
	q.Set("done", what)
	p.redirect(u.EscapedPath(), q)
	return nil
}

// here is the address of this page below Path, with its parameters.
func (p *page) here() string {
	path := strings.TrimPrefix(p.r.URL.EscapedPath(), Path)
	if path == "" {
		path = "/"
	}
	if p.r.URL.RawQuery != "" {
		path += "?" + p.r.URL.RawQuery
	}
	return path
}

// What follows is for templates.

// T is a text in the person's language.
func (p *page) T(text string, args ...any) string {
	if p.Look.Lang == "zh" {
		if zh, ok := chinese.Texts[text]; ok {
			text = zh
		}
	}
	if len(args) == 0 {
		return text
	}
	return fmt.Sprintf(text, args...)
}

// Say is a sentence of an explanation.
func (p *page) Say(s wire.Said) string {
	args := make([]any, len(s.Args))
	for i, a := range s.Args {
		args[i] = p.T(a) // a status, a stage or a unit may have a word; others stand for themselves
	}
	return fmt.Sprintf(p.T(s.Template), args...)
}

// Link is the address of a page of ours, from its path and the parts below it.
func (p *page) Link(path string, parts ...any) string {
	for _, part := range parts {
		path += "/" + url.PathEscape(fmt.Sprint(part))
	}
	return p.prefix + Path + path
}

// Asset is the address of a file of ours.
func (p *page) Asset(name string) string { return p.prefix + Path + "/assets/" + p.h.named[name] }

// With is this page's address with other parameters, given as name, value, …; an empty value removes one. The cursor goes.
func (p *page) With(pairs ...any) string {
	q := p.r.URL.Query()
	q.Del("cursor")
	for _, name := range said() {
		q.Del(name)
	}
	return p.Link(strings.TrimPrefix(p.r.URL.Path, Path)) + suffix(q, pairs)
}

// After is the address of this list's next page.
func (p *page) After(cursor wire.NullText) string {
	q := p.r.URL.Query()
	for _, name := range said() {
		q.Del(name)
	}
	return p.Link(strings.TrimPrefix(p.r.URL.Path, Path)) + suffix(q, []any{"cursor", cursor})
}

// To is the address of a page of ours with parameters, given as name, value, ….
func (p *page) To(path string, pairs ...any) string {
	return p.Link(path) + suffix(url.Values{}, pairs)
}

// suffix is parameters as they stand in an address.
func suffix(q url.Values, pairs []any) string {
	for i := 0; i+1 < len(pairs); i += 2 {
		name, value := fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1])
		if value == "" {
			q.Del(name)
		} else {
			q.Set(name, value)
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// Param is a parameter of this page's address.
func (p *page) Param(name string) string { return p.r.URL.Query().Get(name) }

// Here is this page's address for forms that lead back to it, without what was done before.
func (p *page) Here() string {
	if p.r.Method != http.MethodGet && p.r.Method != http.MethodHead {
		return "/"
	}
	u, err := url.Parse(p.here())
	if err != nil {
		return "/"
	}
	q := u.Query()
	for _, name := range said() {
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Writes reports whether the person may change things: without it no page has a form that does.
func (p *page) Writes() bool { return p.Who.May(auth.ScopeWrite) }

// Uploads reports whether the person may take documents in.
func (p *page) Uploads() bool { return p.Who.May(auth.ScopeUpload) }

// Reads reports whether the person may look at more than the search.
func (p *page) Reads() bool { return p.Who.May(auth.ScopeStatus) }

// Texts reports whether the person may see names and texts of documents. The API hides them; screens and fields that are about
// nothing else are left out.
func (p *page) Texts() bool { return p.Who.May(auth.ScopeRead) }

// DocName is what a document is called here.
func (p *page) DocName(d wire.Document, most int) string {
	switch {
	case d.Title != "":
		return p.Clip(d.Title, most)
	case d.FileName != "":
		return p.Clip(d.FileName, most)
	}
	return p.T("Document %s", p.Short(d.DocumentID))
}

// Searches reports whether the person may search.
func (p *page) Searches() bool { return p.Who.May(auth.ScopeSearch) }

// Operates reports whether the person is an operator who may change things.
func (p *page) Operates() bool { return p.Who.Operator() && p.Writes() }

// LoggedIn reports whether anybody is.
func (p *page) LoggedIn() bool { return p.Who.UserID != "" }

// Open reports whether nobody has to log in here.
func (p *page) Open() bool { return p.h.cfg.Open }

// Refused is what went wrong; nil: nothing.
func (p *page) Refused() *Refusal { return p.refusal }

// Done says what a form has done before it led here.
func (p *page) Done() string {
	if text, ok := doneTexts[p.Param("done")]; ok {
		return p.T(text)
	}
	return p.tookOf()
}

// said are the parameters that say what a form has done.
func said() []string { return []string{"done", "took", "of"} }

// HTMLLang is the language for the lang attribute.
func (p *page) HTMLLang() string {
	if p.Look.Lang == "zh" {
		return "zh-Hans"
	}
	return "en"
}

// Time is a time for reading: relative to now, the whole on hover; or the whole in UTC when the person wants that.
func (p *page) Time(at any) template.HTML {
	var t time.Time
	switch v := at.(type) {
	case wire.Time:
		t = v.Time
	case wire.NullTime:
		if v.Missing() {
			return `<span class="none">–</span>`
		}
		t = v.Time
	case time.Time:
		t = v
	}
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	t = t.UTC()
	whole, shown := t.Format("2006-01-02 15:04:05 UTC"), p.relative(t)
	title := whole
	if p.Look.UTC {
		title, shown = shown, whole
	}
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `" title="` + template.HTMLEscapeString(title) + `">` +
		template.HTMLEscapeString(shown) + `</time>`)
}

// relative says how far a time is from now.
func (p *page) relative(t time.Time) string {
	d := p.now.Sub(t)
	if d.Abs() < time.Second {
		return p.T("now")
	}
	if d < 0 {
		return p.T("in %s", p.Span(-d))
	}
	return p.T("%s ago", p.Span(d))
}

// Span is a length of time in its two largest units.
func (p *page) Span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return p.T("%d days", int(d.Hours()/24))
}

// Seconds is a length of time given in seconds.
func (p *page) Seconds(s float64) string { return p.Span(time.Duration(s * float64(time.Second))) }

// Bytes is a size for reading.
func (p *page) Bytes(n any) string {
	var v float64
	switch n := n.(type) {
	case int:
		v = float64(n)
	case int64:
		v = float64(n)
	}
	if v < 1<<10 {
		return fmt.Sprintf("%d B", int64(v))
	}
	for _, unit := range []string{"KB", "MB", "GB"} {
		v /= 1 << 10
		if v < 1<<10 || unit == "GB" {
			return strconv.FormatFloat(v, 'f', 1, 64) + " " + unit
		}
	}
	return ""
}

// Short is the end of an id, which differs from one to the next.
func (p *page) Short(id any) string {
	s := fmt.Sprint(id)
	if len(s) > 8 {
		return "…" + s[len(s)-8:]
	}
	return s
}

// Clip is the beginning of a long text.
func (p *page) Clip(text any, most int) string {
	runes := []rune(fmt.Sprint(text))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most]) + "…"
}

// CodeText is what an error code says, in Chinese; empty: the language is another one, whose words the API has said itself, or the code is
// not known.
func (p *page) CodeText(code any) string { return p.code(code).Message }

// CodeRemedy is what to do about an error code, in Chinese; empty as with CodeText.
func (p *page) CodeRemedy(code any) string { return p.code(code).Remedy }

func (p *page) code(code any) chinese.Code {
	if p.Look.Lang != "zh" {
		return chinese.Code{}
	}
	return chinese.Codes[fmt.Sprint(code)]
}
