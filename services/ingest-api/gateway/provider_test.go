package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zitadel/oidc/v3/example/server/storage"
	protocol "github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/text/language"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/auth/oidc"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const (
	clientID     = "console"
	clientSecret = "a secret of the console's"
	callbackURL  = "http://127.0.0.1:8081" + oidc.CallbackPath
	publicURL    = "https://docs.example/mill" + oidc.CallbackPath
)

// identities is a certified identity provider over its own storage in memory, with users id1 (ann) and id2 (ben). A test may change
// what it says of a user, and what the token endpoint sends on the way.
type identities struct {
	*storage.Storage
	*httptest.Server
	t     testing.TB
	login func(context.Context, string) string

	mu     sync.Mutex
	roles  any                                // the claim roles of whoever logs in; nil: there is none
	forge  func(claims map[string]any)        // changes an ID token, which is signed again; nil: it stays
	broken atomic.Bool                        // the token endpoint fails
	sign   func(claims map[string]any) string // with another key; nil: with the provider's
	end    *string                            // what the metadata says of the log-out; nil: the provider's own address
	ended  atomic.Int32                       // log-outs that came here
}

// sentBack is the console as the provider knows it: with the address that people are sent back to after a log-out.
type sentBack struct {
	op.Client
	to []string
}

// PostLogoutRedirectURIs are those of the log-ins.
func (c sentBack) PostLogoutRedirectURIs() []string { return c.to }

// GetClientByClientID adds what the example leaves out.
func (p *identities) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	known, err := p.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	out := sentBack{Client: known}
	for _, at := range known.RedirectURIs() {
		out.to = append(out.to, strings.TrimSuffix(at, "/callback"))
	}
	return out, nil
}

// metadata is what the provider says of itself, with another address for the log-out if a test wants one.
func (p *identities) metadata(w http.ResponseWriter, r *http.Request, provider http.Handler) {
	got := httptest.NewRecorder()
	provider.ServeHTTP(got, r)
	p.mu.Lock()
	end := p.end
	p.mu.Unlock()
	var body map[string]any
	if end == nil || json.Unmarshal(got.Body.Bytes(), &body) != nil {
		_, _ = w.Write(got.Body.Bytes())
		return
	}
	if body["end_session_endpoint"] = *end; *end == "" {
		delete(body, "end_session_endpoint")
	}
	_ = json.NewEncoder(w).Encode(body)
}

// SetUserinfoFromRequest adds the role to an ID token, as a provider's mapper does.
func (p *identities) SetUserinfoFromRequest(ctx context.Context, info *protocol.UserInfo, request op.IDTokenRequest, scopes []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.roles != nil {
		info.AppendClaims("roles", p.roles)
	}
	info.PreferredUsername = request.GetSubject() + "@example.org"
	return p.Storage.SetUserinfoFromRequest(ctx, info, request, scopes)
}

// residents are the provider's users.
type residents struct{ storage.UserStore }

func (residents) GetUserByUsername(name string) *storage.User {
	id, known := map[string]string{"ann": "id1", "ben": "id2"}[name]
	if !known {
		return nil
	}
	return &storage.User{ID: id, Username: name, Password: "secret"}
}

func newIdentities(t testing.TB) *identities {
	t.Helper()
	p := &identities{t: t}
	var handler http.Handler
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(p.Close)
	p.register(callbackURL, publicURL)
	provider, err := op.NewProvider(&op.Config{
		CryptoKey: [32]byte{1}, CodeMethodS256: true, AuthMethodPost: true, SupportedUILocales: []language.Tag{language.English},
	}, p, op.StaticIssuer(p.URL), op.WithAllowInsecure(), op.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", provider)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) { p.metadata(w, r, provider) })
	mux.HandleFunc("/end_session", func(w http.ResponseWriter, r *http.Request) { p.ended.Add(1); provider.ServeHTTP(w, r) })
	mux.HandleFunc("/oauth/token", func(w http.ResponseWriter, r *http.Request) { p.token(w, r, provider) })
	p.login = op.AuthCallbackURL(provider)
	mux.HandleFunc("GET /login/username", func(w http.ResponseWriter, r *http.Request) { // ann has a button
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<form method="post"><input type="hidden" name="id" value="`+template.HTMLEscapeString(r.FormValue("authRequestID"))+`"><button id="ann">Ann</button></form>`)
	})
	mux.HandleFunc("POST /login/username", func(w http.ResponseWriter, r *http.Request) {
		id := r.FormValue("id")
		if err := p.CheckUsernamePassword("ann", "secret", id); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Redirect(w, r, p.login(op.ContextWithIssuer(r.Context(), p.URL), id), http.StatusFound)
	})
	handler = mux
	return p
}

// register makes the console known as a client that people are sent back to at these addresses.
func (p *identities) register(addresses ...string) {
	p.Storage = storage.NewStorageWithClients(residents{storage.NewUserStore(p.URL)}, map[string]*storage.Client{
		clientID: storage.WebClient(clientID, clientSecret, addresses...),
	})
}

// token is the provider's token endpoint, with what a test does to it.
func (p *identities) token(w http.ResponseWriter, r *http.Request, provider http.Handler) {
	if p.broken.Load() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	got := httptest.NewRecorder()
	provider.ServeHTTP(got, r)
	p.mu.Lock()
	forge, sign := p.forge, p.sign
	p.mu.Unlock()
	var body map[string]any
	if forge != nil && json.Unmarshal(got.Body.Bytes(), &body) == nil && body["id_token"] != nil {
		claims := map[string]any{}
		text, err := base64.RawURLEncoding.DecodeString(strings.Split(body["id_token"].(string), ".")[1]) //nolint:errcheck,forcetypeassert // a panic is a failure too
		if err == nil && json.Unmarshal(text, &claims) == nil {
			forge(claims)
			if sign == nil {
				sign = p.signed
			}
			body["id_token"] = sign(claims)
			got.Body.Reset()
			_ = json.NewEncoder(got.Body).Encode(body)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(got.Code)
	_, _ = w.Write(got.Body.Bytes())
}

// signed is an ID token with these claims.
func (p *identities) signed(claims map[string]any) string {
	key, err := p.SigningKey(context.Background())
	if err != nil {
		return ""
	}
	signer, err := op.SignerFromKey(key)
	if err != nil {
		return ""
	}
	text, err := json.Marshal(claims)
	if err != nil {
		return ""
	}
	signed, err := signer.Sign(text)
	if err != nil {
		return ""
	}
	out, _ := signed.CompactSerialize()
	return out
}

// says changes what the provider puts into its tokens.
func (p *identities) says(roles any, forge func(claims map[string]any)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roles, p.forge = roles, forge
}

// visit is a person's browser at the provider: it goes to the address, the person logs in, and it is sent back. The result is
// the address that it is sent back to.
func (p *identities) visit(address, name string) *url.URL {
	p.t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	follow := func(address string) *url.URL {
		req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, address, nil)
		require.NoError(p.t, err)
		res, err := client.Do(req)
		require.NoError(p.t, err)
		defer func() { _ = res.Body.Close() }()
		require.Equal(p.t, http.StatusFound, res.StatusCode, address)
		to, err := res.Location()
		require.NoError(p.t, err)
		return to
	}
	asked := follow(address)
	if !strings.HasPrefix(asked.Path, "/login") {
		return asked // it was refused at once
	}
	id := asked.Query().Get("authRequestID")
	require.NoError(p.t, p.CheckUsernamePassword(name, "secret", id))
	return follow(p.login(op.ContextWithIssuer(p.t.Context(), p.URL), id))
}

// provider is our side of it.
func (p *identities) provider(change ...func(*oidc.Config)) *oidc.Provider {
	p.t.Helper()
	return p.providerAt(time.Now, change...)
}

func (p *identities) providerAt(now func() time.Time, change ...func(*oidc.Config)) *oidc.Provider {
	p.t.Helper()
	cfg := oidc.Config{Issuer: p.URL, ClientID: clientID, ClientSecret: clientSecret, RedirectURL: callbackURL}
	for _, f := range change {
		f(&cfg)
	}
	out, err := oidc.New(cfg, now)
	require.NoError(p.t, err)
	return out
}

// newLoginSite is a site whose people log in at a provider.
func newLoginSite(t *testing.T, change ...func(*Config, *Deps)) (*site, *identities) {
	t.Helper()
	p := newIdentities(t)
	return newSite(t, append([]func(*Config, *Deps){func(_ *Config, d *Deps) { d.Provider = p.provider() }}, change...)...), p
}

// begin follows the link of the log-in page and returns the provider's address.
func (b *browser) begin(next string) string {
	b.t.Helper()
	page := b.page("/console/login?" + url.Values{"next": {next}}.Encode())
	require.Contains(b.t, page, `href="/console/login/provider?next=`)
	w := b.get("/console/login/provider?" + url.Values{"next": {next}}.Encode())
	require.Equal(b.t, http.StatusSeeOther, w.Code, w.Body.String())
	return w.Header().Get("Location")
}

// loginAt logs a person in at the provider.
func (b *browser) loginAt(p *identities, name, next string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.get(p.visit(b.begin(next), name).RequestURI())
}

// noSession asserts that nobody is logged in, and returns the page that says why, in both languages.
func (b *browser) noSession(w *httptest.ResponseRecorder, status int, code string) {
	b.t.Helper()
	require.Equal(b.t, status, w.Code, w.Body.String())
	require.Contains(b.t, w.Body.String(), code)
	require.Contains(b.t, w.Body.String(), `role="alert"`)
	require.Contains(b.t, w.Body.String(), `href="/console/login/provider?next=`, "and the way to try again")
	require.Nil(b.t, b.cookies["millweir-console"])
	require.Equal(b.t, http.StatusSeeOther, b.get("/console/tasks").Code)
}

// A person logs in at a provider, is who its token says in the role that it says, and logs out. An operator sees the session among
// the keys and ends it.
func TestConsoleLoginAtAProvider(t *testing.T) {
	t.Parallel()
	s, p := newLoginSite(t)
	b := s.browser()
	address := b.begin("/tasks?status=DEAD")
	asked, err := url.Parse(address)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(address, p.URL+"/authorize?"))
	require.Equal(t, "code", asked.Query().Get("response_type"))
	require.Equal(t, "S256", asked.Query().Get("code_challenge_method"))
	require.NotEmpty(t, asked.Query().Get("state"))
	require.NotEmpty(t, asked.Query().Get("nonce"))
	require.Equal(t, callbackURL, asked.Query().Get("redirect_uri"))
	pending := b.cookies["millweir-console-login"]
	require.NotNil(t, pending)
	require.True(t, pending.HttpOnly)
	require.Equal(t, http.SameSiteLaxMode, pending.SameSite)
	require.Equal(t, "/console/login", pending.Path)
	require.Equal(t, 600, pending.MaxAge)
	require.NotContains(t, pending.Value, asked.Query().Get("state"), "it is sealed")

	w := b.get(p.visit(address, "ann").RequestURI())
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, "0; url=/console/tasks?status=DEAD", w.Header().Get("Refresh"))
	require.Contains(t, w.Body.String(), `href="/console/tasks?status=DEAD"`, "for a browser that does not go on by itself")
	require.Nil(t, b.cookies["millweir-console-login"])
	session := b.cookies["millweir-console"]
	require.NotNil(t, session)
	require.True(t, session.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, session.SameSite)
	require.Regexp(t, `<bdi title="id1">[^<]* id1@example\.org</bdi>`, b.page("/console/tasks"), "the person as the provider names it")
	require.Equal(t, http.StatusForbidden, b.get("/console/audit").Code, "a user is no operator")
	w = b.post("/console/upload", nil)
	require.NotEqual(t, http.StatusForbidden, w.Code)

	events := s.trails(audit.SessionOpen)
	require.Len(t, events, 1)
	require.Equal(t, "id1", events[0].Source.Actor)
	list := decode[wire.List[wire.Key]](t, s.get(s.secrets["operator"], "/internal/keys?limit=1"))
	require.Len(t, list.Items, 1)
	require.Equal(t, "id1", list.Items[0].UserID)
	require.Contains(t, list.Items[0].Name, "id1@example.org")
	require.Equal(t, events[0].Target, list.Items[0].KeyID)
	s.refused(s.get(session.Value, "/api/knowledge/tasks"), http.StatusUnauthorized, web.CodeUnauthenticated)
	w = s.do(s.request(s.secrets["operator"], http.MethodDelete, "/internal/keys/"+list.Items[0].KeyID, nil))
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Equal(t, "/console/login?ended=1&next=%2Ftasks", b.get("/console/tasks").Header().Get("Location"))

	// The role and the scopes are the token's words, as those of every token.
	for _, c := range []struct {
		roles             any
		operator, changes bool
	}{{[]string{"operator"}, true, true}, {"operator read", true, false}, {[]string{"read", "x"}, false, false}, {[]string{"Operator"}, false, true}} {
		p.says(c.roles, nil)
		b := s.browser()
		require.Equal(t, http.StatusOK, b.loginAt(p, "ben", "/").Code)
		page := b.page("/console/upload")
		require.Equal(t, c.operator, strings.Contains(page, `href="/console/audit"`), "%v", c.roles)
		require.Equal(t, c.changes, len(forms(page)) > 0, "%v", c.roles)
		kept := s.browser()
		kept.cookies["millweir-console"] = b.cookies["millweir-console"]
		b.post("/console/logout", nil)
		require.Equal(t, http.StatusSeeOther, kept.get("/console/tasks").Code, "log-out ends the row")
	}
}

// Who logged in at the provider is logged out here first, and then led there and back. The page that leads there is none of a redirect:
// form-action of its policy stays 'self'.
func TestConsoleLogoutAtAProvider(t *testing.T) {
	t.Parallel()
	s, p := newLoginSite(t)
	out := func(language string) *httptest.ResponseRecorder {
		b := s.browser()
		require.Equal(t, http.StatusOK, b.loginAt(p, "ann", "/").Code)
		kept := s.browser()
		kept.cookies["millweir-console"] = b.cookies["millweir-console"]
		b.headers["Accept-Language"] = language
		w := b.post("/console/logout", nil)
		require.Nil(t, b.cookies["millweir-console"])
		require.Equal(t, http.StatusSeeOther, kept.get("/console/tasks").Code, "log-out ends the row")
		return w
	}
	w := out("en")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, consoleCSP, w.Header().Get("Content-Security-Policy"))
	address, found := strings.CutPrefix(w.Header().Get("Refresh"), "0; url=")
	require.True(t, found)
	asked, err := url.Parse(address)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(address, p.URL+"/end_session?"))
	back := strings.TrimSuffix(callbackURL, "/callback")
	require.Equal(t, url.Values{"client_id": {clientID}, "post_logout_redirect_uri": {back}}, asked.Query())
	require.Contains(t, w.Body.String(), `href="`+template.HTMLEscapeString(address)+`"`, "for a browser that does not go on by itself")
	require.Contains(t, w.Body.String(), "You are logged out here.")
	require.NotContains(t, w.Body.String(), "<form method=\"post\" action=\"/console/login\"")
	require.Equal(t, back, p.visit(address, "ann").String(), "the provider sends people back")
	require.Equal(t, int32(1), p.ended.Load())
	require.Contains(t, out("zh").Body.String(), "您已在此退出登录")

	// A session of a key has nothing to do with the provider.
	w = s.as(s.secrets["owner"]).post("/console/logout", nil)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/console/login", w.Header().Get("Location"))

	// The person is logged out here also while the provider cannot be asked.
	b := s.browser()
	require.Equal(t, http.StatusOK, b.loginAt(p, "ann", "/").Code)
	deps := s.g.deps2()
	deps.Provider = p.provider() // which knows nothing yet
	s.g, err = New(testConfig(), deps)
	require.NoError(t, err)
	p.Close()
	kept := s.browser()
	kept.cookies["millweir-console"] = b.cookies["millweir-console"]
	w = b.post("/console/logout", nil)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/console/login", w.Header().Get("Location"))
	require.Equal(t, http.StatusSeeOther, kept.get("/console/tasks").Code)
}

// Of a provider that has no address for it, or none that a browser may be sent to, log-out is as it was, and so is the log-in.
func TestConsoleLogoutByTheProvidersMetadata(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]string{
		"": "", "http://id.example/out": "", "javascript:alert(1)": "", "https://ann:pw@id.example/out": "",
		"https://id.example/out?realm=a%26b#x": "https://id.example/out?client_id=console&post_logout_redirect_uri=http%3A%2F%2F127.0.0.1%3A8081%2Fconsole%2Flogin&realm=a%26b",
	} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s, p := newLoginSite(t)
			p.end = &end
			b := s.browser()
			require.Equal(t, http.StatusOK, b.loginAt(p, "ann", "/").Code)
			w := b.post("/console/logout", nil)
			if want != "" {
				require.Equal(t, "0; url="+want, w.Header().Get("Refresh"))
				return
			}
			require.Equal(t, http.StatusSeeOther, w.Code)
			require.Equal(t, "/console/login", w.Header().Get("Location"))
		})
	}
}

// Behind a proxy with a prefix the redirect URL is the configured one, whatever Host says, and the cookie is bound to the host.
func TestProviderLoginBehindAPrefix(t *testing.T) {
	t.Parallel()
	p := newIdentities(t)
	s := newSite(t, func(c *Config, d *Deps) {
		c.TrustedProxies = []string{"192.0.2.1"}
		d.Provider = p.provider(func(c *oidc.Config) { c.RedirectURL = publicURL })
	})
	b := s.browser()
	b.headers["X-Forwarded-Prefix"], b.headers["X-Forwarded-Proto"], b.headers["X-Forwarded-Host"] = "/mill", "https", "evil.example"
	w := b.get("/console/login/provider?next=/documents")
	require.Equal(t, http.StatusSeeOther, w.Code)
	cookie := b.cookies["__Host-millweir-login"]
	require.NotNil(t, cookie)
	require.True(t, cookie.Secure)
	require.Equal(t, "/", cookie.Path)
	back := p.visit(w.Header().Get("Location"), "ann")
	require.Equal(t, "docs.example", back.Host)
	require.Equal(t, "/mill"+oidc.CallbackPath, back.Path)
	w = b.get(strings.TrimPrefix(back.RequestURI(), "/mill"))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, "0; url=/mill/console/documents", w.Header().Get("Refresh"))
	require.NotNil(t, b.cookies["__Host-millweir"])
	w = b.post("/console/logout", nil)
	require.Contains(t, w.Header().Get("Refresh"), "post_logout_redirect_uri=https%3A%2F%2Fdocs.example%2Fmill%2Fconsole%2Flogin")
	require.Nil(t, b.cookies["__Host-millweir"])
}

// A log-in that begins at one gateway ends at another.
func TestProviderLoginOnSeveralGateways(t *testing.T) {
	t.Parallel()
	s, p := newLoginSite(t)
	b := s.browser()
	address := b.begin("/")
	deps := s.g.deps2()
	deps.Provider = p.provider()
	second, err := New(testConfig(), deps)
	require.NoError(t, err)
	s.g = second
	require.Equal(t, http.StatusOK, b.get(p.visit(address, "ann").RequestURI()).Code)
	require.Contains(t, b.page("/console/tasks"), `title="id1"`)
}

// Nobody is logged in by what is not the answer to the browser's own log-in, and by no answer twice.
func TestProviderLoginIsTheBrowsersOwn(t *testing.T) {
	t.Parallel()
	s, p := newLoginSite(t)

	// Login CSRF: another person's answer in a browser that has begun nothing, or something else.
	mallory := s.browser()
	theirs := p.visit(mallory.begin("/"), "ben").RequestURI()
	b := s.browser()
	b.noSession(b.get(theirs), http.StatusBadRequest, "LOGIN_NOT_BEGUN")
	address := b.begin("/")
	b.noSession(b.get(theirs), http.StatusBadRequest, "LOGIN_MISMATCH")
	own := p.visit(address, "ann")
	for _, changed := range []string{"", "x", own.Query().Get("state") + "x"} {
		q := own.Query()
		q.Set("state", changed)
		b.noSession(b.get(own.Path+"?"+q.Encode()), http.StatusBadRequest, "LOGIN_MISMATCH")
	}

	// Mix-up: an answer that names another issuer (RFC 9207).
	q := own.Query()
	q.Set("iss", "https://other.example")
	b.noSession(b.get(own.Path+"?"+q.Encode()), http.StatusBadRequest, "LOGIN_MISMATCH")

	// None of this was in the way of the browser's own.
	kept := *b.cookies["millweir-console-login"]
	require.Equal(t, http.StatusOK, b.get(own.RequestURI()).Code)
	require.Contains(t, b.page("/console/tasks"), `title="id1"`)

	// The same answer again, and a fresh code for the same state.
	again := s.browser()
	again.cookies[kept.Name] = &kept
	again.noSession(again.get(own.RequestURI()), http.StatusBadRequest, "LOGIN_USED")
	again.cookies[kept.Name] = &kept
	fresh := p.visit(address, "ann")
	require.Equal(t, own.Query().Get("state"), fresh.Query().Get("state"))
	require.NotEqual(t, own.Query().Get("code"), fresh.Query().Get("code"))
	again.noSession(again.get(fresh.RequestURI()), http.StatusBadRequest, "LOGIN_USED")

	// A cookie that somebody has changed, or that another secret has sealed.
	address = s.browser().begin("/")
	first := "A"
	if kept.Value[:1] == first {
		first = "B" // one of 64 sealed values begins with an A
	}
	for _, value := range []string{"x", kept.Value + "x", first + kept.Value[1:], ""} {
		c := s.browser()
		c.cookies[kept.Name] = &http.Cookie{Name: kept.Name, Value: value}
		c.noSession(c.get(p.visit(address, "ann").RequestURI()), http.StatusBadRequest, "LOGIN_NOT_BEGUN")
	}
	_, strange, err := p.provider(func(c *oidc.Config) { c.ClientSecret = strings.Repeat("x", 16) }).Begin(t.Context(), "/")
	require.NoError(t, err)
	c := s.browser()
	c.cookies[kept.Name] = &http.Cookie{Name: kept.Name, Value: strange}
	c.noSession(c.get(own.RequestURI()), http.StatusBadRequest, "LOGIN_NOT_BEGUN")
}

// A code of another log-in is good for nothing: its PKCE verifier and its nonce are missing.
func TestProviderLoginWithAStolenCode(t *testing.T) {
	t.Parallel()
	s, p := newLoginSite(t)
	stolen := p.visit(s.browser().begin("/"), "ann").Query().Get("code")
	b := s.browser()
	own := p.visit(b.begin("/"), "ben")
	q := own.Query()
	q.Set("code", stolen)
	b.noSession(b.get(own.Path+"?"+q.Encode()), http.StatusBadRequest, "LOGIN_USED")
}

// A log-in that takes too long is over.
func TestProviderLoginEnds(t *testing.T) {
	t.Parallel()
	p := newIdentities(t)
	var later atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	s := newSite(t, func(_ *Config, d *Deps) { d.Provider = p.providerAt(now) })
	b := s.browser()
	back := p.visit(b.begin("/"), "ann").RequestURI()
	later.Store(int64(oidc.PendingTTL))
	b.noSession(b.get(back), http.StatusBadRequest, "LOGIN_NOT_BEGUN")
}

// What the provider says that is not a good token is an error of the log-in page, in both languages, with what to do.
func TestProviderLoginIsRefused(t *testing.T) {
	t.Parallel()
	other := newIdentities(t)
	set := func(name string, value any) func(map[string]any) {
		return func(c map[string]any) {
			if c[name] = value; value == nil {
				delete(c, name)
			}
		}
	}
	hour := time.Now().Add(time.Hour).Unix()
	for name, c := range map[string]struct {
		forge  func(map[string]any)
		sign   func(map[string]any) string
		status int
		code   string
		zh     string
	}{
		"audience":       {set("aud", []string{"other"}), nil, http.StatusBadGateway, "LOGIN_AUDIENCE", "另一个应用"},
		"no audience":    {set("aud", nil), nil, http.StatusBadGateway, "LOGIN_AUDIENCE", "另一个应用"},
		"two audiences":  {func(c map[string]any) { c["aud"] = []string{clientID, "other"}; delete(c, "azp") }, nil, http.StatusBadGateway, "LOGIN_AUDIENCE", "另一个应用"},
		"another client": {set("azp", "other"), nil, http.StatusBadGateway, "LOGIN_AUDIENCE", "另一个应用"},
		"issuer":         {set("iss", "https://other.example"), nil, http.StatusBadGateway, "LOGIN_AUDIENCE", "另一个应用"},
		"expired":        {set("exp", time.Now().Add(-time.Minute).Unix()), nil, http.StatusBadGateway, "LOGIN_CLOCK", "时钟"},
		"not yet":        {set("nbf", hour), nil, http.StatusBadGateway, "LOGIN_CLOCK", "时钟"},
		"made later":     {set("iat", hour), nil, http.StatusBadGateway, "LOGIN_CLOCK", "时钟"},
		"no end":         {set("exp", nil), nil, http.StatusBadGateway, "LOGIN_CLOCK", "时钟"},
		"nonce":          {set("nonce", "other"), nil, http.StatusBadRequest, "LOGIN_MISMATCH", "另一次登录"},
		"no nonce":       {set("nonce", nil), nil, http.StatusBadRequest, "LOGIN_MISMATCH", "另一次登录"},
		"nobody":         {set("sub", nil), nil, http.StatusForbidden, "LOGIN_SUBJECT", "用户标识"},
		"our name":       {set("sub", "local"), nil, http.StatusForbidden, "LOGIN_SUBJECT", "用户标识"},
		"invisible":      {set("sub", "a\u202e"), nil, http.StatusForbidden, "LOGIN_SUBJECT", "用户标识"},
		"signature":      {set("x", 1), other.signed, http.StatusBadGateway, "LOGIN_PROVIDER", "不匹配"},
		"no token":       {set("x", 1), func(map[string]any) string { return "a.b.c" }, http.StatusBadGateway, "LOGIN_PROVIDER", "不匹配"},
		"strange claims": {set("roles", map[string]any{"a": 1}), nil, http.StatusBadGateway, "LOGIN_PROVIDER", "不匹配"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := newLoginSite(t)
			p.forge, p.sign = c.forge, c.sign
			b := s.browser()
			w := b.loginAt(p, "ann", "/documents")
			b.noSession(w, c.status, c.code)
			require.Contains(t, w.Body.String(), `value="/documents"`, "where the person wanted to go is kept")
			require.Contains(t, w.Body.String(), web.Kinds[c.code].Remedy[:20])
			b.headers["Accept-Language"] = "zh"
			w = b.loginAt(p, "ann", "/documents")
			b.noSession(w, c.status, c.code)
			require.Contains(t, w.Body.String(), c.zh)
		})
	}
}

// The provider's own errors are shown in our words alone.
func TestProviderLoginIsDenied(t *testing.T) {
	t.Parallel()
	s, _ := newLoginSite(t)
	for said, want := range map[string]struct {
		status int
		code   string
	}{
		"access_denied": {http.StatusForbidden, "LOGIN_DENIED"}, "login_required": {http.StatusForbidden, "LOGIN_DENIED"},
		"server_error": {http.StatusServiceUnavailable, "LOGIN_PROVIDER_UNAVAILABLE"}, "invalid_scope": {http.StatusBadGateway, "LOGIN_PROVIDER"},
		"<script>alert(1)</script>": {http.StatusBadGateway, "LOGIN_PROVIDER"},
	} {
		b := s.browser()
		asked, err := url.Parse(b.begin("/"))
		require.NoError(t, err)
		q := url.Values{"state": {asked.Query().Get("state")}, "error": {said}, "error_description": {"<img src=x onerror=alert(1)> words of the provider"}}
		w := b.get(oidc.CallbackPath + "?" + q.Encode())
		b.noSession(w, want.status, want.code)
		require.NotContains(t, w.Body.String(), "words of the provider")
		require.NotContains(t, w.Body.String(), "alert(1)")
	}
}

// A provider that is away, or that does not know us, is no error of ours: log-in with a key goes on.
func TestProviderIsAway(t *testing.T) {
	t.Parallel()
	s, p := newLoginSite(t)
	b := s.browser()
	p.broken.Store(true)
	b.noSession(b.loginAt(p, "ann", "/"), http.StatusServiceUnavailable, "LOGIN_PROVIDER_UNAVAILABLE")
	p.broken.Store(false)
	address := b.begin("/")
	back := p.visit(address, "ann").RequestURI()
	p.Close()
	b.noSession(b.get(back), http.StatusServiceUnavailable, "LOGIN_PROVIDER_UNAVAILABLE")

	gone := newSite(t, func(_ *Config, d *Deps) { d.Provider = p.provider() })
	b = gone.browser()
	b.noSession(b.get("/console/login/provider"), http.StatusServiceUnavailable, "LOGIN_PROVIDER_UNAVAILABLE")
	gone.as(gone.secrets["owner"]).page("/console/tasks")

	p = newIdentities(t)
	stranger := newSite(t, func(_ *Config, d *Deps) {
		d.Provider = p.provider(func(c *oidc.Config) { c.ClientSecret = "not the client's secret" })
	})
	b = stranger.browser()
	b.noSession(b.loginAt(p, "ann", "/"), http.StatusBadGateway, "LOGIN_PROVIDER")
	renamed := newSite(t, func(_ *Config, d *Deps) { d.Provider = p.provider(func(c *oidc.Config) { c.Issuer += "/" }) })
	b = renamed.browser()
	b.noSession(b.get("/console/login/provider"), http.StatusBadGateway, "LOGIN_PROVIDER")
}

// Codes that somebody tries are limited as keys are, and who has a good one is let in all the same.
func TestProviderCodesAreLimited(t *testing.T) {
	t.Parallel()
	s, p := newLoginSite(t, func(c *Config, _ *Deps) { c.AuthFailLimit = 2 })
	for i, want := range []string{"LOGIN_USED", "LOGIN_USED", web.CodeLoginLimited, web.CodeLoginLimited} {
		b := s.browser()
		asked, err := url.Parse(b.begin("/"))
		require.NoError(t, err)
		w := b.get(oidc.CallbackPath + "?" + url.Values{"state": {asked.Query().Get("state")}, "code": {"guess-" + strconv.Itoa(i)}}.Encode())
		require.Contains(t, w.Body.String(), want)
		require.Nil(t, b.cookies["millweir-console"])
	}
	b := s.browser()
	require.Equal(t, http.StatusOK, b.loginAt(p, "ann", "/").Code)
}

// No log-in leads away from the console.
func TestProviderLoginLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	s, p := newLoginSite(t)
	for _, next := range []string{"https://evil.example/", "//evil.example/", `/\evil.example`, "/../../api", "\r\nX: y", "/" + strings.Repeat("&a", 900)} {
		b := s.browser()
		w := b.get("/console/login/provider?" + url.Values{"next": {next}}.Encode())
		w = b.get(p.visit(w.Header().Get("Location"), "ann").RequestURI())
		require.Equal(t, "0; url=/console/", w.Header().Get("Refresh"), "%q", next)
	}
	long := "/tasks?filter=" + strings.Repeat("a%26", 370)
	b := s.browser()
	w := b.loginAt(p, "ann", long)
	require.Equal(t, "0; url=/console"+long, w.Header().Get("Refresh"))
}

// Without a provider there is no such log-in.
func TestConsoleWithoutAProvider(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.browser()
	require.NotContains(t, b.page("/console/login"), "login/provider")
	for _, path := range []string{"/console/login/provider", oidc.CallbackPath + "?code=a&state=b"} {
		require.Equal(t, http.StatusNotFound, b.get(path).Code)
	}
}
