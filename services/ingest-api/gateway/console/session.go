package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// secureCookie carries the session over TLS; its prefix binds it to this host and to TLS.
	secureCookie = "__Host-millweir"
	// plainCookie carries it without TLS: on the machine itself.
	plainCookie = "millweir-console"
	// cookieLife is longer than a session: a browser that still has the cookie is told that its session has ended.
	cookieLife = 30 * 24 * time.Hour
	// pendingSuffix ends the names of the cookies of log-ins under way, which live for pendingLife.
	pendingSuffix = "-login"
	pendingLife   = 10 * time.Minute
	// maxPendingNext bounds what such a cookie keeps of an address: a browser takes 4 KiB.
	maxPendingNext = 1500
	// maxNext bounds the address that a log-in leads to.
	maxNext = 2000
)

// authenticate finds out who looks.
func (p *page) authenticate() (err error) {
	p.secret = p.cookie()
	p.Who, err = p.visit.Who(p.secret)
	return err
}

// cookieName is the name of the session's cookie on this connection.
func (p *page) cookieName() string {
	if p.tls {
		return secureCookie
	}
	return plainCookie
}

// cookie is the session's secret; empty: there is none.
func (p *page) cookie() string {
	c, err := p.r.Cookie(p.cookieName())
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie keeps a session's secret in the browser; an empty one removes it.
func (p *page) setCookie(secret string) {
	c := &http.Cookie{
		Name: p.cookieName(), Value: secret, Path: p.prefix + Path, MaxAge: int(cookieLife.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: p.tls,
	}
	if p.tls {
		c.Path = "/" // as the name's prefix demands
	}
	if secret == "" {
		c.MaxAge = -1
	}
	http.SetCookie(p.w, c)
}

// toLogin leads to the log-in, which leads back.
func (p *page) toLogin() {
	had := p.cookie() != ""
	if p.r.Method == http.MethodGet && !had && p.r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// A link on another site: the browser keeps the cookie back on the first request, and sends it on one that this page makes.
		p.w.Header().Set("Refresh", "0")
		p.w.WriteHeader(http.StatusOK)
		return
	}
	q := url.Values{}
	if next := p.here(); p.r.Method == http.MethodGet && next != "/" {
		q.Set("next", next)
	}
	if had {
		q.Set("ended", "1")
		p.setCookie("")
	}
	p.redirect("/login", q)
}

// next is the page of ours that a form or an address names; anything else is the first page.
func next(text string) string {
	if len(text) > maxNext || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\\r\n\t") {
		return "/"
	}
	u, err := url.Parse(text)
	if err != nil || u.IsAbs() || u.Host != "" || strings.Contains(u.Path, "/../") || strings.HasSuffix(u.Path, "/..") {
		return "/"
	}
	return u.RequestURI()
}

type loginForm struct {
	Next     string
	Ended    bool
	Provider string // where else people log in; empty: nowhere
	To       string // the address to go on to: the log-in, or the log-out here, is done
	Out      bool   // it is a log-out
}

// loginForm is the log-in that leads to a page of ours.
func (h *Handler) loginForm(back string) loginForm {
	return loginForm{Next: back, Provider: h.cfg.Provider}
}

func (h *Handler) loginPage(p *page) error {
	back := next(p.r.URL.Query().Get("next"))
	if p.authenticate() == nil {
		p.redirect(back, nil)
		return nil
	}
	form := h.loginForm(back)
	form.Ended = p.r.URL.Query().Get("ended") == "1"
	return p.render(http.StatusOK, "login", p.T("Log in"), form)
}

func (h *Handler) login(p *page) error {
	if err := p.readForm(); err != nil {
		return err
	}
	back, key := next(p.form.Get("next")), strings.TrimSpace(p.form.Get("key"))
	secret, _, err := p.visit.LogIn(key)
	if err != nil {
		return p.noLogin(back, err)
	}
	p.setCookie(secret)
	p.redirect(back, nil)
	return nil
}

// noLogin shows the log-in again with what went wrong.
func (p *page) noLogin(back string, err error) error {
	var refused *Refusal
	if !errors.As(err, &refused) {
		return err
	}
	p.refusal, p.Section = refused, "login"
	return p.render(refused.Status, "login", p.T("Log in"), p.h.loginForm(back))
}

// beginLogin sends the browser to the identity provider. It needs no form: the worst that a link from elsewhere does is to begin
// a log-in of the browser's own person.
func (h *Handler) beginLogin(p *page) error {
	back := next(p.r.URL.Query().Get("next"))
	if len(back) > maxPendingNext {
		back = "/"
	}
	address, keep, err := p.visit.BeginLogin(back)
	if err != nil {
		return p.noLogin(back, err)
	}
	p.keepLogin(keep)
	p.w.Header().Set("Location", address)
	p.w.WriteHeader(http.StatusSeeOther)
	return nil
}

// finishLogin takes what the identity provider sent the browser back with. It leads on by a page and not by a redirect: a cookie
// with SameSite=Strict is kept back on a redirect of a request that began on another site.
func (h *Handler) finishLogin(p *page) error {
	keep := ""
	if c, err := p.r.Cookie(p.pendingName()); err == nil {
		keep = c.Value
	}
	secret, back, err := p.visit.FinishLogin(keep, p.r.URL.Query())
	back = next(back)
	var refused *Refusal
	if errors.As(err, &refused) && refused.Code == "LOGIN_MISMATCH" {
		return p.noLogin(back, err) // the browser's own log-in can still end well
	}
	p.keepLogin("")
	if err != nil {
		return p.noLogin(back, err)
	}
	p.setCookie(secret)
	form := h.loginForm(back)
	form.To, p.Section = p.Link(back), "login"
	p.w.Header().Set("Refresh", "0; url="+form.To)
	return p.render(http.StatusOK, "login", p.T("Log in"), form)
}

// pendingName is the name of the cookie of a log-in under way.
func (p *page) pendingName() string {
	if p.tls {
		return secureCookie + pendingSuffix
	}
	return plainCookie + pendingSuffix
}

// keepLogin keeps a log-in under way in the browser; an empty one removes it. The provider's redirect has to bring it back, so it is
// SameSite=Lax; it is good for nothing without the provider's answer to it.
func (p *page) keepLogin(keep string) {
	c := &http.Cookie{
		Name: p.pendingName(), Value: keep, Path: p.prefix + Path + "/login", MaxAge: int(pendingLife.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: p.tls,
	}
	if p.tls {
		c.Path = "/"
	}
	if keep == "" {
		c.MaxAge = -1
	}
	http.SetCookie(p.w, c)
}

// logout ends the session here, and then leads to the identity provider where that has an address for it. It does so by a page and not
// by a redirect: browsers hold the redirects of a form to form-action of the Content-Security-Policy, which is 'self'.
func (h *Handler) logout(p *page) error {
	onward := ""
	if secret := p.cookie(); secret != "" && !h.cfg.Open {
		var err error
		if onward, err = p.visit.LogOut(secret); err != nil {
			return err
		}
		p.setCookie("")
	}
	if onward == "" {
		p.redirect("/login", nil)
		return nil
	}
	form := h.loginForm("/")
	form.To, form.Out, p.Section = onward, true, "login"
	p.w.Header().Set("Refresh", "0; url="+onward)
	return p.render(http.StatusOK, "login", p.T("Log out"), form)
}
