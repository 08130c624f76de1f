package redisq

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/millweir/millweir/pkg/labserver"
	pb "github.com/millweir/millweir/proto"
)

// What a worker reads names its task. Entries that nobody can decode are refused by the read itself, whichever member is wrong,
// although what this release writes is decoded only when somebody asks.
func TestEntriesAreRefusedByTheReadAndDecodedWhenAsked(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": labserver.RedisURL(t), "embedded": embeddedURL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, url)
			q := r.queue(nil)
			for _, c := range []struct {
				what   string
				fields []string
			}{
				{"no task", []string{"userId", "u"}},
				{"an empty task", []string{"taskId", "", "userId", "u"}},
				{"a version that is none", []string{"taskId", "t", "schemaVersion", "0"}},
				{"a version that is no number", []string{"taskId", "t", "schemaVersion", "one"}},
				{"bytes", []string{"taskId", "t", "userId", "\xff"}},
				{"a name of bytes", []string{"taskId", "t", "\xff", "u"}},
				{"a context that is not JSON", []string{"taskId", "t", "context", `{"requestId":"r"`}},
				{"a context of the wrong type", []string{"taskId", "t", "context", `[1]`}},
				{"a payload that is not JSON", []string{"taskId", "t", "payload", "{"}},
				{"too large", []string{"taskId", "t", "filePath", strings.Repeat("x", pb.MaxEnvelope)}},
				{"the version of another release", []string{"taskId", "t", "schemaVersion", "2"}},
				{"names of Python", []string{"task_id", "t", "user_id", "u"}},
				{"a field of another release", []string{"taskId", "t", "later", `{"a":1}`}},
				{"a context of another release", []string{"taskId", "t", "context", `{"requestId":"r","later":1}`}},
				{"one name twice", []string{"taskId", "t", "taskId", "u"}},
			} {
				named := map[string]string{}
				for i := 0; i < len(c.fields); i += 2 {
					named[c.fields[i]] = c.fields[i+1]
				}
				want, wrong := pb.DecodeFields(named)
				r.do(t, append([]string{"XADD", r.cfg.StreamKey, "*"}, c.fields...)...)
				got, err := q.Read(t.Context(), 1, time.Second)
				require.NoError(t, err, c.what)
				require.Len(t, got, 1, c.what)
				if wrong != nil {
					require.EqualError(t, got[0].Err, "decode delivery "+got[0].ID+": "+wrong.Error(), c.what)
					require.Equal(t, named, got[0].Raw, c.what)
					require.Empty(t, got[0].TaskID, c.what)
					require.Nil(t, got[0].Envelope(), c.what)
					continue
				}
				require.NoError(t, got[0].Err, c.what)
				require.Equal(t, want.GetTaskId(), got[0].TaskID, c.what)
				require.True(t, protobuf.Equal(want, got[0].Envelope()), c.what)
			}

			own := []*pb.TaskEnvelope{{
				SchemaVersion: 1, TaskId: "t", Type: "document", Source: "millweir", UserId: "anna", DocumentId: "d", FilePath: "a.pdf",
				Context: &pb.TaskContext{RequestId: "r", Traceparent: "00-1", User: "anna"},
			}}
			_, err := q.Publish(t.Context(), own)
			require.NoError(t, err)
			got, err := q.Read(t.Context(), 1, time.Second)
			require.NoError(t, err)
			require.IsType(t, &unread{}, got[0].Body, "what this release writes is not decoded")
			require.Equal(t, own[0].GetTaskId(), got[0].TaskID)
			require.True(t, protobuf.Equal(own[0], got[0].Envelope()))
			require.True(t, protobuf.Equal(own[0], got[0].Envelope()), "the same each time")
		})
	}
}
