package redisclient

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Errors of an address; no error text ever holds its password.
var (
	// ErrCluster is the cause when the server at a redis:// address turns out to be a node of a Redis Cluster.
	ErrCluster = errors.New("the server is a node of a Redis Cluster: REDIS_URL must be redis-cluster://host:port,host:port")
	// ErrURL is wrapped by every error of an address.
	ErrURL = errors.New("not an address of Redis")
)

const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

// address is a parsed REDIS_URL.
type address struct {
	tls                bool
	sentinel, cluster  bool     // neither: one Redis
	hosts              []string // host:port; of the sentinels if sentinel, of some nodes if cluster
	master             string   // the sentinels' name for the primary
	username, password string
	db                 int

	sentinelUser, sentinelPassword string
	caFile                         string
	skipVerify                     bool
	embedded                       bool
}

// Check reads an address, and tells whether it names a Redis Cluster. Error: ErrURL.
func Check(rawURL string) (cluster bool, err error) {
	a, err := parseURL(rawURL)
	return a.cluster, err
}

// Embedded tells whether an address is that of the embedded server.
func Embedded(rawURL string) bool {
	a, err := parseURL(rawURL)
	return err == nil && a.embedded
}

// Redact returns rawURL with its passwords replaced by ***; for logs.
func Redact(rawURL string) string {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return "***"
	}
	// A login ends at the last "@", wherever a password that is not percent-encoded puts it: better too much than too little.
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[:authorityEnd(rest[:at], ":/?#")] + ":***" + rest[at:]
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	out := scheme + "://" + rest
	if !hasQuery {
		return out
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		if name, _, _ := strings.Cut(pair, "="); strings.Contains(name, "password") {
			pairs[i] = name + "=***"
		}
	}
	return out + "?" + strings.Join(pairs, "&")
}

// authorityEnd is where the first of some characters stands, or the text's end.
func authorityEnd(text, stops string) int {
	if at := strings.IndexAny(text, stops); at >= 0 {
		return at
	}
	return len(text)
}

// parseURL reads what New documents.
func parseURL(raw string) (address, error) {
	a, err := readURL(raw)
	if err == nil {
		return a, nil
	}
	_, rest, _ := strings.Cut(raw, "://")
	if strings.LastIndexByte(rest, '@') > authorityEnd(rest, "/?#") {
		// A password with a slash in it puts its rest among the other parts: what the error would name may be that.
		return a, fmt.Errorf("%w: user and password must be percent-encoded", ErrURL)
	}
	return a, err
}

// readURL cuts the parts itself: net/url does not take several hosts.
func readURL(raw string) (address, error) {
	var a address
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return a, fmt.Errorf("%w: want redis://host:port, rediss://…, redis-sentinel://… or redis-cluster://…", ErrURL)
	}
	base, mode, _ := strings.Cut(scheme, "-")
	a.tls, a.sentinel, a.cluster = base == "rediss", mode == "sentinel", mode == "cluster"
	if !slices.Contains([]string{"redis", "redis-sentinel", "redis-cluster"}, strings.Replace(scheme, "rediss", "redis", 1)) {
		return a, fmt.Errorf("%w: scheme %q, want redis, redis-sentinel or redis-cluster, over TLS rediss, rediss-sentinel or rediss-cluster", ErrURL, scheme)
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	for _, step := range []func() error{
		func() error { return a.readAuthority(authority) },
		func() error { return a.readPath(path, fragment) },
		func() error { return a.readQuery(query) },
	} {
		if err := step(); err != nil {
			return a, err
		}
	}
	return a, a.check()
}

func (a *address) readAuthority(authority string) error {
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		var err1, err2 error
		a.username, err1 = url.PathUnescape(user)
		a.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("%w: user and password must be percent-encoded", ErrURL)
		}
		authority = authority[at+1:]
	}
	port := redisPort
	if a.sentinel {
		port = sentinelPort
	}
	for host := range strings.SplitSeq(authority, ",") {
		name, p, err := net.SplitHostPort(host)
		if err != nil {
			name, p = strings.Trim(host, "[]"), port
		}
		if n, err := strconv.Atoi(p); name == "" || strings.ContainsAny(name, " /") || err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%w: host %q, want host:port", ErrURL, host)
		}
		a.hosts = append(a.hosts, net.JoinHostPort(name, p))
	}
	return nil
}

// readPath takes /db; for sentinels /master, /master/db, or Lettuce's /db#master.
func (a *address) readPath(path, fragment string) (err error) {
	path = strings.Trim(path, "/")
	if a.sentinel && fragment == "" {
		a.master, path, _ = strings.Cut(path, "/")
		if a.master, err = url.PathUnescape(a.master); err != nil {
			return fmt.Errorf("%w: name of the master must be percent-encoded", ErrURL)
		}
	}
	if fragment != "" {
		a.master = fragment
	}
	return a.readDB(path)
}

func (a *address) readDB(db string) (err error) {
	if db == "" {
		return nil
	}
	if a.db, err = strconv.Atoi(db); err != nil || a.db < 0 {
		return fmt.Errorf("%w: database %q, want a number from 0", ErrURL, db)
	}
	return nil
}

func (a *address) readQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%w: query must be percent-encoded", ErrURL)
	}
	for name := range values {
		value := values.Get(name)
		var err error
		switch name {
		case "db":
			err = a.readDB(value)
		case "sentinel_user":
			a.sentinelUser = value
		case "sentinel_password":
			a.sentinelPassword = value
		case "ca_file":
			a.caFile = value
		case "skip_verify":
			a.skipVerify, err = strconv.ParseBool(value)
		case "embedded":
			a.embedded, err = strconv.ParseBool(value)
		default:
			return fmt.Errorf("%w: unknown parameter %q", ErrURL, name)
		}
		if err != nil && !errors.Is(err, ErrURL) {
			err = fmt.Errorf("%w: %s is %q, want true or false", ErrURL, name, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *address) check() error {
	switch {
	case !a.sentinel && !a.cluster && len(a.hosts) > 1:
		return fmt.Errorf("%w: %d hosts, redis:// has one: a Redis Cluster is redis-cluster://host:port,host:port, "+
			"one Redis with Sentinels is redis-sentinel://host:port,host:port/master", ErrURL, len(a.hosts))
	case a.cluster && a.db != 0:
		return fmt.Errorf("%w: database %d, a Redis Cluster has 0 only", ErrURL, a.db)
	case !a.sentinel && a.master != "":
		return fmt.Errorf("%w: only redis-sentinel:// has a #master", ErrURL)
	case a.sentinel && a.master == "":
		return fmt.Errorf("%w: redis-sentinel:// must name the master: redis-sentinel://host:port,host:port/name", ErrURL)
	case !a.sentinel && (a.sentinelUser != "" || a.sentinelPassword != ""):
		return fmt.Errorf("%w: sentinel_user and sentinel_password need redis-sentinel://", ErrURL)
	case !a.tls && (a.caFile != "" || a.skipVerify):
		return fmt.Errorf("%w: ca_file and skip_verify need rediss://, rediss-sentinel:// or rediss-cluster://", ErrURL)
	}
	return nil
}
