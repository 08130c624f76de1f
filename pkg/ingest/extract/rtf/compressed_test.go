package rtf_test

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/rtf"
)

// The examples of MS-OXRTFCP, sections 3.1.1 and 3.1.2: the second one copies what it is just writing.
func TestCompressedRichText(t *testing.T) {
	t.Parallel()
	for compressed, want := range map[string]string{
		"2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0": "{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n",
		"1a0000001c0000004c5a4675e2d44b51410004205758595a0d6e7d010eb0":                                       "{\\rtf1 WXYZWXYZWXYZWXYZWXYZ}",
		"16000000060000004d454c4100000000" + hex.EncodeToString([]byte("{\\rtf}, and more")):                 "{\\rtf}",
	} {
		data, err := hex.DecodeString(compressed)
		require.NoError(t, err)
		got, err := rtf.Decompress(data)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		for n := 16; n < len(data); n++ { // as far as it is there
			got, err := rtf.Decompress(data[:n])
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(want, string(got)), "%d bytes: %q", n, got)
		}
		_, err = rtf.Decompress(data[:15])
		extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
		copy(data[8:], "what")
		_, err = rtf.Decompress(data)
		extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
		binary.LittleEndian.PutUint32(data[4:], 1<<30)
		_, err = rtf.Decompress(data)
		extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	}
}
