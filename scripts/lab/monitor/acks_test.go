package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
)

func TestAcknowledgementsAreReadFromMonitor(t *testing.T) {
	t.Parallel()
	at := time.Unix(1700000000, 123456000).UTC()
	require.Equal(t, []fsck.Ack{{At: at, ID: "1-0"}, {At: at, ID: "2-0"}},
		parseAcks(`+1700000000.123456 [0 127.0.0.1:5] "XACK" "ingest:tasks" "ingest-workers" "1-0" "2-0"`+"\r\n", "0"))
	require.Equal(t, []fsck.Ack{{At: at, ID: "1-0", Script: true}}, parseAcks(`+1700000000.123456 [0 lua] "xack" "s" "g" "1-0"`, "0"))
	require.Equal(t, []fsck.Ack{{At: at, ID: "12:1-0"}},
		parseAcks(`+1700000000.123456 [0 127.0.0.1:5] "XACK" "stream:topic:ingest-tasks:p:12" "ingest-workers" "1-0"`, "0"))
	require.Equal(t, []fsck.Ack{{At: at, ID: "/1-0"}},
		parseAcks(`+1700000000.123456 [0 127.0.0.1:5] "XACK" "queue:tasks" "persist-workers" "1-0"`, "0"), "an entry of ingest:tasks may have the same id")
	for _, line := range []string{"+OK", "", `+1700000000.123456 [0 127.0.0.1:5] "XADD" "s" "*" "a" "] \"XACK"`, `+x.y [0 lua] "XACK" "s" "g" "1"`, `+1700000000.123456 [10 lua] "XACK" "s" "g" "1"`} {
		require.Empty(t, parseAcks(line, "0"), line)
	}
}
