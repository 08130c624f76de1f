package redisclient

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]address{
		"redis://localhost":                  {hosts: []string{"localhost:6379"}},
		"redis://10.0.0.1:7000/3":            {hosts: []string{"10.0.0.1:7000"}, db: 3},
		"redis://h?db=4":                     {hosts: []string{"h:6379"}, db: 4},
		"redis://[::1]:7000":                 {hosts: []string{"[::1]:7000"}},
		"redis://[::1]":                      {hosts: []string{"[::1]:6379"}},
		"redis://:p%40ss%2F@h":               {hosts: []string{"h:6379"}, password: "p@ss/"},
		"redis://u:a@b@h:1":                  {hosts: []string{"h:1"}, username: "u", password: "a@b"},
		"redis://127.0.0.1:1?embedded=true":  {hosts: []string{"127.0.0.1:1"}, embedded: true},
		"rediss://h:1?skip_verify=true":      {hosts: []string{"h:1"}, tls: true, skipVerify: true},
		"rediss://h:1/2?ca_file=/etc/ca.pem": {hosts: []string{"h:1"}, db: 2, tls: true, caFile: "/etc/ca.pem"},
		"redis-sentinel://a:1,b/main?db=2&sentinel_password=s": {
			hosts: []string{"a:1", "b:26379"}, db: 2, sentinel: true, master: "main", sentinelPassword: "s",
		},
		"redis-sentinel://u:p@a:1,b:2/main/5": {
			hosts: []string{"a:1", "b:2"}, db: 5, sentinel: true, master: "main", username: "u", password: "p",
		},
		"redis-cluster://a:1,b":                     {hosts: []string{"a:1", "b:6379"}, cluster: true},
		"rediss-cluster://u:p@a:1/0?ca_file=ca.pem": {hosts: []string{"a:1"}, cluster: true, tls: true, username: "u", password: "p", caFile: "ca.pem"},
		"rediss-sentinel://a:1/3#main?":             {hosts: []string{"a:1"}, db: 3, sentinel: true, tls: true, master: "main?"},
	} {
		got, err := parseURL(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
}

func TestBadURLsAreToldWithoutTheirPassword(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for raw, want := range map[string]string{
		"":                                    "redis://",
		"localhost:6379":                      "redis://",
		"http://u:hunter2@h":                  "scheme",
		"redis://u:hunter2@":                  "host",
		"redis://u:hunter2@h:port":            "host",
		"redis://u:hunter2@h:70000":           "host",
		"redis://u:hunter2%zz@h":              "percent-encoded",
		"redis://u:hunter2@h/one":             "database",
		"redis://u:hunter2@h/-1":              "database",
		"redis://u:hunter2@h?db=x":            "database",
		"redis://u:hunter2@h?pool=5":          `"pool"`,
		"redis://u:hunter2@h?skip_verify=1":   "rediss://",
		"rediss://u:hunter2@h?skip_verify=j":  "skip_verify",
		"redis://u:hunter2@h#main":            "redis-sentinel://",
		"redis-sentinel://u:hunter2@h":        "master",
		"redis://h?sentinel_password=hunter2": "redis-sentinel://",
		"redis://u:hunter2@a:1,b:2":           "redis-cluster://host:port,host:port",
		"rediss://u:hunter2@a:1,b:2":          "redis-sentinel://host:port,host:port/master",
		"redis-cluster://u:hunter2@h:1/1":     "database 1, a Redis Cluster has 0 only",
		"redis-cluster://u:hunter2@h:1?db=2":  "database 2, a Redis Cluster has 0 only",
		"redis-cluster://u:hunter2@h:1/main":  "database",
		"redis-cluster://u:hunter2@h:1#main":  "redis-sentinel://",
		"redis-cluster://h:1?sentinel_user=u": "redis-sentinel://",
		"redis-cluster://h:1?skip_verify=1":   "rediss-cluster://",
	} {
		_, err := New(raw)
		require.ErrorIs(t, err, ErrURL, raw)
		require.ErrorContains(t, err, want, raw)
		require.NotContains(t, err.Error(), secret)
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis://h:1/2":                "redis://h:1/2",
		"redis://u:hunter2@h:1/2?db=1": "redis://u:***@h:1/2?db=1",
		"redis://:hunt@er2@h":          "redis://:***@h",
		"hunter2":                      "***",
		"redis-sentinel://a,b/m?sentinel_password=hunter2&db=1": "redis-sentinel://a,b/m?sentinel_password=***&db=1",
	} {
		require.Equal(t, want, Redact(raw))
	}
}

func TestMissingCAIsNamed(t *testing.T) {
	t.Parallel()
	_, err := New("rediss://h?ca_file=/no/such.pem")
	require.ErrorContains(t, err, "/no/such.pem")
	_, err = New("rediss://h?ca_file=url_test.go")
	require.ErrorContains(t, err, "no certificate")
}
