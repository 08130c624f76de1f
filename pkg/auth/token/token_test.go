package token_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/token"
	"github.com/millweir/millweir/pkg/taskstate"
)

const secret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// clock is a time that the test moves.
type clock struct{ at atomic.Int64 }

func (c *clock) Now() time.Time          { return start.Add(time.Duration(c.at.Load())) }
func (c *clock) Advance(d time.Duration) { c.at.Add(int64(d)) }

// good are the claims of a good token.
func good() map[string]any {
	return map[string]any{
		"iss": "https://id.example", "aud": "millweir", "sub": "ada", "exp": start.Add(time.Hour).Unix(), "nbf": start.Unix(), "iat": start.Unix(),
	}
}

// with is the good claims with some changed; nil takes one away.
func with(changes map[string]any) map[string]any {
	c := good()
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// sign makes a token.
func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, kid string, claims any, extra map[jose.HeaderKey]any) string {
	t.Helper()
	opts := &jose.SignerOptions{ExtraHeaders: extra}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, opts)
	require.NoError(t, err)
	body, ok := claims.(string)
	if !ok {
		text, err := json.Marshal(claims)
		require.NoError(t, err)
		body = string(text)
	}
	signed, err := signer.Sign([]byte(body))
	require.NoError(t, err)
	text, err := signed.CompactSerialize()
	require.NoError(t, err)
	return text
}

// raw makes a token by hand.
func raw(head, claims string, mac []byte) string {
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(head)) + "." + enc.EncodeToString([]byte(claims)) + "." + enc.EncodeToString(mac)
}

func shared(t *testing.T, c *clock) *token.Verifier {
	t.Helper()
	v, err := token.New(token.Config{Secret: []byte(secret), Issuer: "https://id.example", Audience: "millweir"}, c.Now)
	require.NoError(t, err)
	return v
}

func TestSharedSecret(t *testing.T) {
	t.Parallel()
	v := shared(t, &clock{})
	for _, alg := range []jose.SignatureAlgorithm{jose.HS256, jose.HS384, jose.HS512} {
		who, err := v.Authenticate(t.Context(), sign(t, alg, []byte(secret), "", good(), nil))
		require.NoError(t, err)
		require.Equal(t, auth.Principal{UserID: "ada", Role: taskstate.RoleUser, Scopes: auth.AllScopes()}, who)
	}
	short, err := token.New(token.Config{Secret: []byte(secret[:32]), Issuer: "https://id.example", Audience: "millweir"}, (&clock{}).Now)
	require.NoError(t, err)
	_, err = short.Authenticate(t.Context(), sign(t, jose.HS256, []byte(secret[:32]), "", good(), nil))
	require.NoError(t, err)
	_, err = short.Authenticate(t.Context(), sign(t, jose.HS512, []byte(secret), "", good(), nil))
	require.ErrorIs(t, err, auth.ErrInvalidKey)
}

func TestRoleAndScopes(t *testing.T) {
	t.Parallel()
	v := shared(t, &clock{})
	for _, c := range []struct {
		claims   map[string]any
		operator bool
		scopes   string
	}{
		{nil, false, "read,write"},
		{map[string]any{"scope": "openid profile"}, false, "read,write"},
		{map[string]any{"scope": "openid read"}, false, "read"},
		{map[string]any{"scope": "search upload"}, false, "search,upload"},
		{map[string]any{"scope": "operator status"}, true, "status"},
		{map[string]any{"scope": "status write"}, false, ""}, // which no key can have
		{map[string]any{"scope": []string{"write"}}, false, "write"},
		{map[string]any{"scope": "operator"}, true, "read,write"},
		{map[string]any{"scope": "operator read"}, true, "read"},
		{map[string]any{"scp": []string{"operator", "read", "write"}}, true, "read,write"},
		{map[string]any{"scope": "operators Operator operator,x"}, false, "read,write"},
		{map[string]any{"role": "operator", "Scope": "operator"}, false, "read,write"},
	} {
		who, err := v.Authenticate(t.Context(), sign(t, jose.HS256, []byte(secret), "", with(c.claims), nil))
		require.NoError(t, err)
		require.Equal(t, c.operator, who.Operator(), "%v", c.claims)
		require.Equal(t, c.scopes, who.Scopes.String(), "%v", c.claims)
	}
}

func TestClaimsAreRequired(t *testing.T) {
	t.Parallel()
	v := shared(t, &clock{})
	at := func(d time.Duration) int64 { return start.Add(d).Unix() }
	refused := []any{
		with(map[string]any{"iss": nil}), with(map[string]any{"iss": "https://id.example/"}),
		with(map[string]any{"aud": nil}), with(map[string]any{"aud": []string{"other", "millweir2"}}), with(map[string]any{"aud": 7}),
		with(map[string]any{"exp": nil}), with(map[string]any{"nbf": nil, "iat": nil}), with(map[string]any{"exp": "soon"}), with(map[string]any{"exp": 1e300}),
		with(map[string]any{"exp": -1}), with(map[string]any{"exp": at(-30 * time.Second)}), with(map[string]any{"nbf": at(31 * time.Second)}),
		with(map[string]any{"nbf": nil, "iat": at(31 * time.Second)}),
		with(map[string]any{"sub": nil}), with(map[string]any{"sub": ""}), with(map[string]any{"sub": strings.Repeat("x", 191)}),
		with(map[string]any{"sub": "a\nb"}), with(map[string]any{"sub": 7}), with(map[string]any{"sub": "local"}), with(map[string]any{"sub": "anna "}),
		with(map[string]any{"sub": " anna"}), with(map[string]any{"sub": "anna\u202e"}), with(map[string]any{"sub": "mu\u0308ller"}), with(map[string]any{"sub": "system"}),
		"null", "[]", "{", "",
		strings.Replace(mustJSON(t, good()), `{`, `{"sub":"root",`, 1), // a name twice
		strings.Replace(mustJSON(t, good()), `"sub"`, `"Sub"`, 1),
	}
	for _, claims := range refused {
		_, err := v.Authenticate(t.Context(), sign(t, jose.HS256, []byte(secret), "", claims, nil))
		require.ErrorIs(t, err, auth.ErrInvalidKey, "%v", claims)
	}
	for _, claims := range []any{
		with(map[string]any{"aud": []string{"other", "millweir"}}), with(map[string]any{"exp": at(-29 * time.Second)}),
		with(map[string]any{"nbf": at(29 * time.Second)}), with(map[string]any{"nbf": nil}), // Keycloak's have none
		with(map[string]any{"nbf": nil, "iat": at(29 * time.Second)}), with(map[string]any{"iat": at(time.Hour)}), with(map[string]any{"exp": float64(at(0)) + 0.5}), with(map[string]any{"sub": "läuferin"}),
	} {
		_, err := v.Authenticate(t.Context(), sign(t, jose.HS256, []byte(secret), "", claims, nil))
		require.NoError(t, err, "%v", claims)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// issuer serves a key set that the test changes.
type issuer struct {
	*httptest.Server
	mu      sync.Mutex
	body    string
	status  int
	fetches atomic.Int64
}

func newIssuer(t *testing.T, keys ...jose.JSONWebKey) *issuer {
	t.Helper()
	i := &issuer{status: http.StatusOK}
	i.serve(t, keys...)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.fetches.Add(1)
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.status == http.StatusFound {
			http.Redirect(w, r, "/elsewhere", i.status)
			return
		}
		w.WriteHeader(i.status)
		_, _ = w.Write([]byte(i.body))
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) serve(t *testing.T, keys ...jose.JSONWebKey) {
	i.answer(200, mustJSON(t, jose.JSONWebKeySet{Keys: keys}))
}

func (i *issuer) answer(status int, body string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status, i.body = status, body
}

func (i *issuer) verifier(t *testing.T, c *clock) *token.Verifier {
	t.Helper()
	v, err := token.New(token.Config{KeySetURL: i.URL + "/jwks", Issuer: "https://id.example", Audience: "millweir"}, c.Now)
	require.NoError(t, err)
	return v
}

// pair is a key pair under a kid.
func pair(t *testing.T, kid string, private crypto.Signer) (crypto.Signer, jose.JSONWebKey) {
	t.Helper()
	return private, jose.JSONWebKey{Key: private.Public(), KeyID: kid, Use: "sig"}
}

func rsaKey(t *testing.T, bits int) crypto.Signer {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)
	return k
}

func ecKey(t *testing.T, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(curve, rand.Reader)
	require.NoError(t, err)
	return k
}

func TestKeySet(t *testing.T) {
	t.Parallel()
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	rsa1, rsaPublic := pair(t, "r", rsaKey(t, 2048))
	ec1, ecPublic := pair(t, "e", ecKey(t, elliptic.P256()))
	ec2, ec2Public := pair(t, "e2", ecKey(t, elliptic.P384()))
	ed1, edPublic := pair(t, "d", edKey)
	narrow, narrowPublic := pair(t, "n", rsaKey(t, 2048))
	narrowPublic.Algorithm = "RS512"
	i := newIssuer(t, rsaPublic, ecPublic, ec2Public, edPublic, narrowPublic)
	v := i.verifier(t, &clock{})
	for _, c := range []struct {
		alg jose.SignatureAlgorithm
		key crypto.Signer
		kid string
	}{
		{jose.RS256, rsa1, "r"}, {jose.RS512, rsa1, "r"}, {jose.PS256, rsa1, "r"}, {jose.ES256, ec1, "e"}, {jose.ES384, ec2, "e2"},
		{jose.EdDSA, ed1, "d"}, {jose.RS512, narrow, "n"},
	} {
		_, err := v.Authenticate(t.Context(), sign(t, c.alg, c.key, c.kid, good(), nil))
		require.NoError(t, err, c.alg)
	}
	require.EqualValues(t, 1, i.fetches.Load())
	for _, text := range []string{
		sign(t, jose.RS256, narrow, "n", good(), nil), // the key is for RS512
		sign(t, jose.RS256, rsa1, "n", good(), nil),   // another key's name
		sign(t, jose.ES256, ec1, "r", good(), nil),    // another sort's
		sign(t, jose.RS256, rsa1, "", good(), nil),
	} {
		_, err := v.Authenticate(t.Context(), text)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
	}
}

// What is not fit to verify a token does not, though it stands in the set.
func TestUnfitKeysOfTheSet(t *testing.T) {
	t.Parallel()
	ok, okPublic := pair(t, "ok", rsaKey(t, 2048))
	small, smallPublic := pair(t, "small", rsaKey(t, 1024))
	enc, encPublic := pair(t, "enc", ecKey(t, elliptic.P256()))
	encPublic.Use = "enc"
	private := jose.JSONWebKey{Key: ok, KeyID: "private"}
	symmetric := jose.JSONWebKey{Key: []byte(secret), KeyID: "symmetric"}
	v := newIssuer(t, okPublic, smallPublic, encPublic, private, symmetric).verifier(t, &clock{})
	_, err := v.Authenticate(t.Context(), sign(t, jose.RS256, ok, "ok", good(), nil))
	require.NoError(t, err)
	for _, text := range []string{
		sign(t, jose.RS256, small, "small", good(), nil), sign(t, jose.ES256, enc, "enc", good(), nil),
		sign(t, jose.RS256, ok, "private", good(), nil), sign(t, jose.HS256, []byte(secret), "symmetric", good(), nil),
	} {
		_, err := v.Authenticate(t.Context(), text)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
	}
}

// A fetch replaces all keys, comes at most once a minute, and its failure leaves the old ones for an hour.
func TestKeySetIsRenewed(t *testing.T) {
	t.Parallel()
	c := &clock{}
	claims := with(map[string]any{"exp": start.Add(24 * time.Hour).Unix()})
	old, oldPublic := pair(t, "old", ecKey(t, elliptic.P256()))
	fresh, freshPublic := pair(t, "new", ecKey(t, elliptic.P256()))
	i := newIssuer(t, oldPublic)
	v := i.verifier(t, c)
	byOld, byNew := sign(t, jose.ES256, old, "old", claims, nil), sign(t, jose.ES256, fresh, "new", claims, nil)
	ask := func(text string) error {
		_, err := v.Authenticate(t.Context(), text)
		return err
	}
	require.NoError(t, ask(byOld))
	i.serve(t, freshPublic)
	for range 100 {
		require.ErrorIs(t, ask(byNew), auth.ErrInvalidKey)
	}
	require.EqualValues(t, 1, i.fetches.Load(), "unknown kids do not make us fetch at will")
	c.Advance(time.Minute)
	require.NoError(t, ask(byNew))
	require.ErrorIs(t, ask(byOld), auth.ErrInvalidKey, "the issuer took the old key back")
	require.EqualValues(t, 2, i.fetches.Load())

	for _, bad := range []struct {
		status int
		body   string
	}{{500, ""}, {200, "<html>"}, {200, `{"keys":[]}`}, {200, strings.Repeat(" ", 1<<20) + `{"keys":[]}`}, {302, ""}} {
		i.answer(bad.status, bad.body)
		c.Advance(10 * time.Minute)
		require.NoError(t, ask(byNew), "the old set serves on")
	}
	require.EqualValues(t, 7, i.fetches.Load())
	c.Advance(10 * time.Minute)
	require.ErrorIs(t, ask(byNew), taskstate.ErrUnavailable, "an hour without an answer: nobody can say any more")
	require.NotErrorIs(t, ask(byNew), auth.ErrInvalidKey)
	i.serve(t, freshPublic)
	c.Advance(time.Minute)
	require.NoError(t, ask(byNew))
}

// A30: none, a public key as a secret, kid as a path, a megabyte of dots, keys that the token brings itself.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	private, public := pair(t, "r", rsaKey(t, 2048))
	i := newIssuer(t, public)
	v, hs := i.verifier(t, &clock{}), shared(t, &clock{})
	der, err := x509.MarshalPKIXPublicKey(public.Key)
	require.NoError(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	claims := mustJSON(t, good())
	valid := sign(t, jose.RS256, private, "r", good(), nil)
	foreign, foreignPublic := pair(t, "r", rsaKey(t, 2048))
	forged := map[string]string{
		"none":               raw(`{"alg":"none"}`, claims, nil),
		"NONE with a kid":    raw(`{"alg":"NONE","kid":"r"}`, claims, nil),
		"no alg":             raw(`{"kid":"r"}`, claims, nil),
		"no signature":       valid[:strings.LastIndex(valid, ".")+1],
		"public key as MAC":  sign(t, jose.HS256, publicPEM, "r", good(), nil),
		"public DER as MAC":  sign(t, jose.HS256, der, "r", good(), nil),
		"kid is a path":      sign(t, jose.HS256, make([]byte, 32), "../../../../dev/null", good(), nil),
		"kid is SQL":         sign(t, jose.RS256, private, "r' OR '1'='1", good(), nil),
		"other private key":  sign(t, jose.RS256, foreign, "r", good(), nil),
		"brings jwk":         sign(t, jose.RS256, foreign, "r", good(), map[jose.HeaderKey]any{"jwk": foreignPublic}),
		"brings jku":         sign(t, jose.RS256, foreign, "x", good(), map[jose.HeaderKey]any{"jku": i.URL + "/evil", "x5u": i.URL + "/evil"}),
		"unknown crit":       sign(t, jose.RS256, private, "r", good(), map[jose.HeaderKey]any{"crit": []string{"exp"}}),
		"a megabyte of dots": strings.Repeat(".", 1<<20),
		"huge":               valid + strings.Repeat("A", 8<<10),
		"four parts":         valid + ".x",
		"five parts":         "a.b.c.d.e",
		"JSON form":          `{"payload":"` + strings.Split(valid, ".")[1] + `"}`,
		"payload exchanged":  strings.Join([]string{strings.Split(valid, ".")[0], base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(claims, "ada", "eve", 1))), strings.Split(valid, ".")[2]}, "."),
		"empty":              "",
		"dots":               "..",
	}
	for name, text := range forged {
		for _, verifier := range []*token.Verifier{v, hs} {
			_, err := verifier.Authenticate(t.Context(), text)
			require.ErrorIs(t, err, auth.ErrInvalidKey, name)
		}
	}
	_, err = v.Authenticate(t.Context(), valid)
	require.NoError(t, err)
	_, err = hs.Authenticate(t.Context(), valid)
	require.ErrorIs(t, err, auth.ErrInvalidKey, "another configuration's")
	require.EqualValues(t, 1, i.fetches.Load(), "nothing is fetched because a token says so")
}

// Not parallel: it counts allocations.
func TestRefusingAHugeTokenCostsNothing(t *testing.T) {
	v, dots := shared(t, &clock{}), strings.Repeat(".", 1<<20)
	require.Less(t, testing.AllocsPerRun(100, func() { _, _ = v.Authenticate(t.Context(), dots) }), 20.0)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	require.NoError(t, token.Config{}.Validate())
	require.False(t, token.Config{Issuer: "x"}.Enabled())
	full := token.Config{Secret: []byte(secret), Issuer: "i", Audience: "a"}
	require.NoError(t, full.Validate())
	for want, change := range map[string]func(*token.Config){
		"JWT_ISSUER":   func(c *token.Config) { c.Issuer = "" },
		"JWT_AUDIENCE": func(c *token.Config) { c.Audience = "" },
		"JWT_SECRET":   func(c *token.Config) { c.Secret = []byte("short") },
		"JWKS_URL":     func(c *token.Config) { c.KeySetURL = "https://id.example/jwks" },
	} {
		c := full
		change(&c)
		require.ErrorContains(t, c.Validate(), want)
		_, err := token.New(c, nil)
		require.Error(t, err)
	}
	for url, ok := range map[string]bool{
		"https://id.example/jwks": true, "http://127.0.0.1:8080/jwks": true, "http://[::1]/jwks": true, "http://localhost/jwks": true,
		"http://id.example/jwks": false, "http://127.0.0.1.evil.example/": false, "file:///etc/passwd": false, "https://user:pw@id.example/": false,
		"https://": false, "id.example/jwks": false, "http://localhost@evil.example/": false, "gopher://127.0.0.1/": false, "http://10.0.0.1/": false,
	} {
		err := token.Config{KeySetURL: url, Issuer: "i", Audience: "a"}.Validate()
		require.Equal(t, ok, err == nil, "%s: %v", url, err)
	}
}

func FuzzAuthenticate(f *testing.F) {
	v, err := token.New(token.Config{Secret: []byte(secret), Issuer: "i", Audience: "a"}, func() time.Time { return start })
	require.NoError(f, err)
	f.Add("..")
	f.Add(raw(`{"alg":"HS256"}`, `{"sub":"x"}`, []byte("mac")))
	f.Add(raw(`{"alg":"HS256","crit":["b64"],"b64":false}`, `{}`, nil))
	f.Fuzz(func(t *testing.T, text string) {
		_, err := v.Authenticate(t.Context(), text)
		require.ErrorIs(t, err, auth.ErrInvalidKey)
	})
}
