package extract

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func TestFramesRoundTrip(t *testing.T) {
	t.Parallel()
	b := ingest.Block{Kind: ingest.BlockTable, Text: "a | 死", Page: 70_000, Level: 6}
	var wire bytes.Buffer
	require.NoError(t, writeFrame(&wire, frameBlock, encodeBlock(nil, b)))
	kind, payload, err := readFrame(&wire, nil)
	require.NoError(t, err)
	require.Equal(t, byte(frameBlock), kind)
	got, err := decodeBlock(payload)
	require.NoError(t, err)
	require.Equal(t, b, got)
	done, total, err := decodeProgress(encodeProgress(3, 7))
	require.NoError(t, err)
	require.Equal(t, [2]int{3, 7}, [2]int{done, total})
}

func TestBadFramesAreRefused(t *testing.T) {
	t.Parallel()
	for name, wire := range map[string]string{
		"too long": "B\xff\xff\xff\xff", "cut off": "B\x00\x00\x00\x05ab",
	} {
		_, _, err := readFrame(strings.NewReader(wire), nil)
		require.ErrorIs(t, err, errBadFrame, name)
	}
	for name, payload := range map[string]string{
		"short": "\x00", "kind": "\x09\x00\x00\x00\x00\x00text", "level": "\x00\x09\x00\x00\x00\x00text", "empty": "\x00\x00\x00\x00\x00\x00 ",
		"utf8": "\x00\x00\x00\x00\x00\x00\xff", "nul": "\x00\x00\x00\x00\x00\x00a\x00", "page": "\x00\x00\xff\xff\xff\xfftext",
	} {
		_, err := decodeBlock([]byte(payload))
		require.ErrorIs(t, err, errBadFrame, name)
	}
	_, _, err := decodeProgress(encodeProgress(8, 7))
	require.ErrorIs(t, err, errBadFrame)
	require.ErrorIs(t, writeFrame(&bytes.Buffer{}, frameBlock, make([]byte, maxFrameBytes+1)), errBadFrame)
}

func FuzzFrames(f *testing.F) {
	var wire bytes.Buffer
	require.NoError(f, writeFrame(&wire, frameBlock, encodeBlock(nil, ingest.Block{Kind: ingest.BlockList, Text: "x"})))
	f.Add(wire.Bytes())
	f.Add([]byte("P\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x02"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			kind, payload, err := readFrame(r, nil)
			if err != nil {
				return
			}
			require.LessOrEqual(t, len(payload), maxFrameBytes)
			switch kind {
			case frameBlock:
				if b, err := decodeBlock(payload); err == nil {
					require.NoError(t, checkBlock(b))
				}
			case frameProgress:
				_, _, _ = decodeProgress(payload)
			}
		}
	})
}
