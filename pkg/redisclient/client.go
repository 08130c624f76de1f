// Package redisclient opens the connection to the Redis, Sentinel set or Redis Cluster that a REDIS_URL names.
package redisclient

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

const (
	dialTimeout     = 2 * time.Second
	responseTimeout = 5 * time.Second // a connection that answers nothing for that long is closed
	refreshInterval = 5 * time.Second // of what the sentinels or the nodes of a cluster say, should an event be missed
	connBuffer      = 64 << 10        // bytes; rueidis' own 512 KiB twice per connection cost too much memory
	connRing        = 9               // 2^9 commands under way per connection
	poolCleanup     = time.Minute     // idle blocking connections
	maxRetries      = 5               // of commands that may run twice: one for each stale connection after a restart
	firstRetryDelay = 5 * time.Millisecond
)

// New makes a client for
//
//	redis://[user[:password]@]host[:port][/db]
//	rediss://… the same over TLS; ?ca_file=/path/ca.pem and ?skip_verify=true
//	redis-sentinel://[user[:password]@]host:port,host:port/master[/db] (or /db#master); rediss-sentinel:// over TLS;
//	  ?sentinel_user= and ?sentinel_password= for the sentinels, the user part is for Redis itself
//	redis-cluster://[user[:password]@]host:port,host:port with some nodes of a Redis Cluster; rediss-cluster:// over TLS
//
// each, but for a cluster, also with ?db=. It does not need a server that answers: until there is one, every command fails.
// Commands that may run twice are tried again at once after a lost connection, for less than a second in all.
// Errors: ErrURL, or the CA file's. The caller closes the client.
func New(rawURL string) (rueidis.Client, error) {
	a, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	option, err := clientOption(a)
	if err != nil {
		return nil, err
	}
	if a.sentinel {
		return newLazyClient(option, rueidis.ClientModeSentinel), nil
	}
	if a.cluster {
		return newLazyClient(option, rueidis.ClientModeCluster), nil
	}
	client, err := connect(option)
	if client == nil { // with ForceSingleClient a failed dial gives a client too
		return nil, fmt.Errorf("client for %s: %w", Redact(rawURL), err)
	}
	return client, nil
}

// connect makes a client; of one Redis there is one although a dial failed.
func connect(option rueidis.ClientOption) (rueidis.Client, error) {
	client, err := rueidis.NewClient(option)
	if client == nil {
		return nil, err
	}
	return stream.Pinned(client), err
}

func clientOption(a address) (rueidis.ClientOption, error) {
	option := rueidis.ClientOption{
		InitAddress: a.hosts, Username: a.username, Password: a.password, SelectDB: a.db, ClientName: "millweir",
		ForceSingleClient: !a.sentinel && !a.cluster, DisableCache: true, AlwaysRESP2: a.embedded,
		Dialer:             net.Dialer{Timeout: dialTimeout, KeepAlive: time.Second},
		ConnWriteTimeout:   responseTimeout,
		ReadBufferEachConn: connBuffer, WriteBufferEachConn: connBuffer, RingScaleEachConn: connRing,
		BlockingPoolCleanup: poolCleanup, RetryDelay: retryDelay,
	}
	if a.cluster {
		option.ClusterOption.ShardsRefreshInterval = refreshInterval
	}
	if a.tls {
		config, err := tlsConfig(a)
		if err != nil {
			return option, err
		}
		option.TLSConfig = config
	}
	if a.sentinel {
		option.Sentinel = rueidis.SentinelOption{
			Dialer: option.Dialer, TLSConfig: option.TLSConfig, MasterSet: a.master,
			Username: a.sentinelUser, Password: a.sentinelPassword, ClientName: option.ClientName,
			TopologyRefreshInterval: refreshInterval,
		}
	}
	return option, nil
}

func tlsConfig(a address) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.skipVerify} //nolint:gosec // the operator's choice
	if a.caFile == "" {
		return config, nil
	}
	pem, err := os.ReadFile(a.caFile)
	if err != nil {
		return nil, fmt.Errorf("CA of Redis: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA of Redis: no certificate in %s", a.caFile)
	}
	return config, nil
}

// retryDelay spaces the retries of rueidis; a negative delay ends them.
func retryDelay(attempts int, _ rueidis.Completed, _ error) time.Duration {
	if attempts > maxRetries {
		return -1
	}
	return firstRetryDelay << (attempts - 1)
}
