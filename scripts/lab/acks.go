package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingestq/streamq"
)

// monitorPause is the pause before Redis is asked again after it went away.
const monitorPause = 50 * time.Millisecond

// RecordAcks writes every acknowledgement that one database of Redis at addr gets as a JSON line (fsck.Ack), by MONITOR, until stop is called,
// which answers the first error of out. While Redis is away there is nothing to see; what the first milliseconds after its
// return bring may be missing.
func RecordAcks(addr, db string, out io.Writer) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	lines := json.NewEncoder(out)
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			monitor(ctx, addr, db, func(a fsck.Ack) {
				if failed == nil {
					failed = lines.Encode(a)
				}
			})
			if !Pause(ctx, monitorPause) {
				return
			}
		}
	})
	return func() error {
		cancel()
		wg.Wait()
		return failed
	}
}

// monitor gives each acknowledgement to note until the connection breaks or ctx ends.
func monitor(ctx context.Context, addr, db string, note func(fsck.Ack)) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	unwatch := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer unwatch()
	defer conn.Close() //nolint:errcheck // only read
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		return
	}
	in := bufio.NewReaderSize(conn, 1<<16)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue // the rest of a long command looks like no XACK
		case err != nil:
			return
		}
		for _, a := range parseAcks(string(line), db) {
			note(a)
		}
	}
}

// parseAcks reads one line of MONITOR: +seconds.micros [db client] "COMMAND" "word" …; the client of a script is "lua".
func parseAcks(line, db string) []fsck.Ack {
	head, command, ok := strings.Cut(strings.TrimSpace(line), `] "`)
	stamp, client, _ := strings.Cut(head, " [")
	words := strings.Split(strings.TrimSuffix(command, `"`), `" "`)
	if !ok || !strings.HasPrefix(client, db+" ") || len(words) < 4 || !strings.EqualFold(words[0], "XACK") {
		return nil
	}
	seconds, micros, _ := strings.Cut(strings.TrimPrefix(stamp, "+"), ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	us, microsErr := strconv.ParseInt(micros, 10, 64)
	if err != nil || microsErr != nil {
		return nil
	}
	partition := ""
	if number, ok := strings.CutPrefix(words[1], "stream:topic:"+streamq.Topic+":p:"); ok {
		partition = number + ":" // as deliveries of partitions are named
	}
	var out []fsck.Ack
	for _, id := range words[3:] {
		id = partition + id
		out = append(out, fsck.Ack{At: time.Unix(s, us*1000).UTC(), ID: id, Script: strings.HasSuffix(client, " lua")})
	}
	return out
}
