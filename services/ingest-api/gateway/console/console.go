// Package console shows the API to people in a browser: pages that work without a script, made on the server.
//
// It is a face of the API and nothing more (design D27). A page asks the gateway's own handler, in the process and in the right of
// the session, and shows what that says: who may do what, what is allowed and what went wrong is judged there. The package has no
// database, no store, and no rule of its own. Handler.Serve is the entry point.
//
// page.go is what every page has, session.go who looks, caller.go how the API is asked. Package chinese has the Chinese texts, package
// drawing the geometry of drawings. The rest is a file for each group of screens.
package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/wire"
)

// Path is where the console is, without the prefix of a proxy.
const Path = "/console"

// csp is the Content-Security-Policy of every page.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

const (
	// maxForm bounds the body of a form that is not an upload, formTime how long it may take to come in.
	maxForm  = 64 << 10
	formTime = 20 * time.Second
)

//go:embed templates/*.html
var templateFiles embed.FS

// Visit is the gateway's side of one request. Its errors are *Refusal.
type Visit interface {
	// TLS reports whether the browser's connection is encrypted.
	TLS() bool
	// Prefix is the path that a proxy has taken away before ours, or empty.
	Prefix() string
	// LogIn makes a session of an API key, until ends.
	LogIn(key string) (secret string, ends time.Time, err error)
	// BeginLogin returns the identity provider's address, and what the browser keeps until FinishLogin.
	BeginLogin(next string) (address, keep string, err error)
	// FinishLogin makes a session of what the identity provider sent the browser back with; next is that of BeginLogin, or empty.
	FinishLogin(keep string, q url.Values) (secret, next string, err error)
	// Who is who holds the secret of a session.
	Who(secret string) (auth.Principal, error)
	// LogOut ends a session; onward is where the browser goes to log out at the identity provider too, or empty.
	LogOut(secret string) (onward string, err error)
	// API has the API return a request in the right of a session.
	API(w http.ResponseWriter, r *http.Request, secret string)
}

// Refusal is an error of the API.
type Refusal struct{ wire.Problem }

// Error is the code and the message.
func (e *Refusal) Error() string { return e.Code + ": " + e.Message }

// Config is what the console is told by its gateway.
type Config struct {
	Open         bool   // nobody logs in: everyone is the operator of this machine
	FileBytes    int64  // of one file at most
	RequestBytes int64  // of all files of a request
	Provider     string // of identities, as people know it; empty: there is none
	Now          func() time.Time
	Log          *slog.Logger
}

// Handler serves the console. It is safe for concurrent use.
type Handler struct {
	cfg    Config
	pages  map[string]*template.Template // see parsed
	assets map[string]asset              // by name with the hash
	named  map[string]string             // plain name → name with the hash
	mux    *http.ServeMux
}

// handlerFunc is a page: it has written it, or returns why not and has then written nothing.
type handlerFunc func(p *page) error

// New makes a console.
func New(cfg Config) (*Handler, error) {
	h := &Handler{cfg: cfg, mux: http.NewServeMux()}
	if err := h.loadAssets(); err != nil {
		return nil, err
	}
	var err error
	if h.pages, err = parsed(); err != nil {
		return nil, err
	}
	h.route()
	return h, nil
}

// parsed are the pages' templates by name, each with the layout.
var parsed = sync.OnceValues(func() (map[string]*template.Template, error) {
	layout, err := template.New("layout").ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	pages := map[string]*template.Template{}
	for _, file := range names {
		own, err := layout.Clone()
		if err == nil {
			_, err = own.ParseFS(templateFiles, file)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		pages[strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")] = own
	}
	return pages, nil
})

// route puts the screens at their addresses.
func (h *Handler) route() {
	h.mux.HandleFunc("GET "+Path+"/assets/{name}", h.serveAsset)
	public := map[string]handlerFunc{
		"GET /login": h.loginPage, "POST /login": h.login, "POST /logout": h.logout, "POST /look": h.setLook,
		"GET /login/provider": h.beginLogin, "GET /login/callback": h.finishLogin,
	}
	for pattern, f := range public {
		h.at(pattern, f)
	}
	for pattern, f := range h.screens() {
		h.at(pattern, known(f))
	}
	h.mux.HandleFunc(Path+"/", func(w http.ResponseWriter, r *http.Request) { // no screen
		h.serve(w, r, known(func(*page) error { return refuse(http.StatusNotFound, "NOT_FOUND", "there is nothing at this address") }))
	})
}

// screens are the pages for who is logged in, by method and path.
func (h *Handler) screens() map[string]handlerFunc {
	all := map[string]handlerFunc{"GET /{$}": h.home, "GET ": h.home}
	for _, some := range []map[string]handlerFunc{
		h.taskScreens(), h.documentScreens(), h.baseScreens(), h.searchScreens(), h.uploadScreens(), h.previewScreens(), h.operatorScreens(), h.healthScreens(), h.bulkScreens(),
	} {
		for pattern, f := range some {
			all[pattern] = f
		}
	}
	return all
}

// at puts a page at an address below Path.
func (h *Handler) at(pattern string, f handlerFunc) {
	method, path, _ := strings.Cut(pattern, " ")
	h.mux.HandleFunc(method+" "+Path+path, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, f) })
}

// Serve returns one request.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, v Visit) {
	w.Header().Set("Content-Security-Policy", csp)
	h.mux.ServeHTTP(w, r.WithContext(withVisit(r.Context(), v)))
}

// serve makes the page's record, has it written, and shows what went wrong.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, f handlerFunc) {
	p := h.newPage(w, r)
	err := f(p)
	if err == nil {
		return
	}
	var refused *Refusal
	if !errors.As(err, &refused) {
		h.cfg.Log.ErrorContext(r.Context(), "console: page failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		refused = &Refusal{wire.Problem{Status: http.StatusInternalServerError, Code: "INTERNAL", Message: "Something went wrong on our side."}}
	}
	if refused.Status == http.StatusUnauthorized && !h.cfg.Open {
		p.toLogin()
		return
	}
	p.refusal = refused
	p.w.Header().Set("Cache-Control", "no-store")
	if err := p.render(refused.Status, "problem", p.T("This did not work"), refused.Problem); err != nil {
		h.cfg.Log.ErrorContext(r.Context(), "console: page failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	}
}

// known is a page for who is logged in.
func known(f handlerFunc) handlerFunc {
	return func(p *page) error {
		if err := p.authenticate(); err != nil {
			return err
		}
		if p.r.Method == http.MethodPost && !p.sendsFiles() { // which are passed on as they come in
			if err := p.readForm(); err != nil {
				return err
			}
		}
		return f(p)
	}
}

// sendsFiles reports whether the form is one with files, at an address that takes them.
func (p *page) sendsFiles() bool {
	at := strings.TrimPrefix(p.r.URL.Path, Path)
	return at == "/upload" || at == "/preview" && strings.HasPrefix(p.r.Header.Get("Content-Type"), "multipart/form-data")
}

// readForm reads a form that is not an upload.
func (p *page) readForm() error {
	kind, _, _ := strings.Cut(p.r.Header.Get("Content-Type"), ";")
	if p.r.ContentLength != 0 && kind != "application/x-www-form-urlencoded" {
		return refuse(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "a form here is application/x-www-form-urlencoded")
	}
	control := http.NewResponseController(p.w)
	_ = control.SetReadDeadline(time.Now().Add(formTime)) // recorders in tests know no deadlines
	text, err := io.ReadAll(http.MaxBytesReader(p.w, p.r.Body, maxForm))
	if err == nil {
		p.form, err = url.ParseQuery(string(text))
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", fmt.Sprintf("the form is larger than %d bytes", tooLarge.Limit))
	case err != nil:
		return refuse(http.StatusBadRequest, "INCOMPLETE_BODY", "the form cannot be read: "+err.Error())
	}
	_ = control.SetReadDeadline(time.Time{})
	return nil
}

// refuse is a refusal of the console itself: of a request that never reaches the API.
func refuse(status int, code, message string) error {
	return &Refusal{wire.Problem{Status: status, Code: code, Message: message}}
}

// noSuchStep refuses a step that no form of ours asks for.
func noSuchStep() error { return refuse(http.StatusNotFound, "NOT_FOUND", "there is no such step") }

//go:embed assets
var assetFiles embed.FS

// asset is a file for browsers.
type asset struct {
	kind string // media type
	body []byte
}

// assetKinds are the media types by the end of a name.
var assetKinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// loadAssets names every file by its content.
func (h *Handler) loadAssets() error {
	h.assets, h.named = map[string]asset{}, map[string]string{}
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		return err
	}
	for _, f := range files {
		body, err := assetFiles.ReadFile("assets/" + f.Name())
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		end := path.Ext(f.Name())
		name := strings.TrimSuffix(f.Name(), end) + "." + hex.EncodeToString(sum[:8]) + end
		h.assets[name], h.named[f.Name()] = asset{kind: assetKinds[end], body: body}, name
	}
	return nil
}

// serveAsset sends a file of ours; its name says its content, so it never changes.
func (h *Handler) serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := h.assets[r.PathValue("name")]
	if !ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("no such file; load the page again\n"))
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.body)
}
