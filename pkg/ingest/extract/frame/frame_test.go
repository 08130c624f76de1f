package frame

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

func TestFramesRoundTrip(t *testing.T) {
	t.Parallel()
	b := ingest.Block{Kind: ingest.BlockTable, Text: "a | 死", Page: 70_000, Level: 6}
	var wire bytes.Buffer
	require.NoError(t, Write(&wire, KindBlock, EncodeBlock(nil, b)))
	kind, payload, err := Read(&wire, nil)
	require.NoError(t, err)
	require.Equal(t, byte(KindBlock), kind)
	got, err := DecodeBlock(payload)
	require.NoError(t, err)
	require.Equal(t, b, got)
	done, total, err := DecodeProgress(EncodeProgress(3, 7))
	require.NoError(t, err)
	require.Equal(t, [2]int{3, 7}, [2]int{done, total})
}

func TestBadFramesAreRefused(t *testing.T) {
	t.Parallel()
	for name, wire := range map[string]string{
		"too long": "B\xff\xff\xff\xff", "cut off": "B\x00\x00\x00\x05ab",
	} {
		_, _, err := Read(strings.NewReader(wire), nil)
		require.ErrorIs(t, err, ErrBad, name)
	}
	for name, payload := range map[string]string{
		"short": "\x00", "kind": "\x09\x00\x00\x00\x00\x00text", "level": "\x00\x09\x00\x00\x00\x00text", "empty": "\x00\x00\x00\x00\x00\x00 ",
		"utf8": "\x00\x00\x00\x00\x00\x00\xff", "nul": "\x00\x00\x00\x00\x00\x00a\x00", "page": "\x00\x00\xff\xff\xff\xfftext",
	} {
		_, err := DecodeBlock([]byte(payload))
		require.ErrorIs(t, err, ErrBad, name)
	}
	_, err := DecodeBlock(EncodeBlock(nil, ingest.Block{Kind: "picture", Text: "text"}))
	require.ErrorIs(t, err, ErrBad, "a kind that is none")
	_, _, err = DecodeProgress(EncodeProgress(8, 7))
	require.ErrorIs(t, err, ErrBad)
	require.ErrorIs(t, Write(&bytes.Buffer{}, KindBlock, make([]byte, maxBytes+1)), ErrBad)
}

func FuzzFrames(f *testing.F) {
	var wire bytes.Buffer
	require.NoError(f, Write(&wire, KindBlock, EncodeBlock(nil, ingest.Block{Kind: ingest.BlockList, Text: "x"})))
	f.Add(wire.Bytes())
	f.Add([]byte("P\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x02"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			kind, payload, err := Read(r, nil)
			if err != nil {
				return
			}
			require.LessOrEqual(t, len(payload), maxBytes)
			switch kind {
			case KindBlock:
				if b, err := DecodeBlock(payload); err == nil {
					require.NoError(t, document.CheckBlock(b))
				}
			case KindProgress:
				_, _, _ = DecodeProgress(payload)
			}
		}
	})
}

func TestJSONFrames(t *testing.T) {
	t.Parallel()
	var wire bytes.Buffer
	want := Job{MediaType: "text/plain", Size: 7, Limits: document.Limits{MaxTextBytes: 3, MaxPages: 4}}
	require.NoError(t, WriteJSON(&wire, KindJob, want))
	kind, payload, err := Read(&wire, make([]byte, 2))
	require.NoError(t, err)
	require.Equal(t, byte(KindJob), kind)
	var got Job
	require.NoError(t, json.Unmarshal(payload, &got))
	require.Equal(t, want, got)
	require.Error(t, WriteJSON(&wire, KindDone, func() {}), "what is no JSON is not written")
	require.Zero(t, wire.Len())
	require.ErrorIs(t, WriteJSON(&wire, KindDone, strings.Repeat("x", maxBytes)), ErrBad)
}

// A child may say what it likes: a code that is no reader's, a remedy with markup, a text without end.
func TestAVerdictsWordsAreAStrangers(t *testing.T) {
	t.Parallel()
	for code, c := range map[ingest.Code]struct {
		permanent bool
		want      ingest.Code
	}{
		ingest.CodeEmpty: {true, ingest.CodeEmpty}, ingest.CodeEncrypted: {true, ingest.CodeEncrypted}, ingest.CodeCorrupt: {true, ingest.CodeCorrupt},
		ingest.CodeUnsupportedType: {true, ingest.CodeUnsupportedType}, ingest.CodeLimitExceeded: {true, ingest.CodeLimitExceeded},
		ingest.CodeNeedsOCR: {true, ingest.CodeNeedsOCR}, ingest.CodeEncoding: {true, ingest.CodeEncoding},
		ingest.CodeExtractCrashed: {false, ingest.CodeExtractCrashed}, "ADMIN": {false, ingest.CodeInternal}, ingest.CodeFileMissing: {false, ingest.CodeInternal},
	} {
		v := Verdict{Code: code, Permanent: true, Remedy: "do\nthis\x00", Error: strings.Repeat("e", 2*MaxMessage) + "\x1b[31m"}
		f := ingest.AsFailure(v.Failure())
		require.Equal(t, c.want, f.Code)
		require.Equal(t, c.permanent, f.Permanent, code)
		require.Equal(t, "do this", f.Remedy)
		require.LessOrEqual(t, len(f.Error()), MaxMessage)
		require.NotContains(t, f.Error(), "\x1b")
	}
	require.Len(t, Shorten(strings.Repeat("x", 1<<20)), MaxMessage)
	require.Equal(t, "x", Shorten("x"))
}

func TestPicturesThatAChildMaySend(t *testing.T) {
	t.Parallel()
	width, height, err := DecodePicture(EncodePicture(2480, 3508))
	require.NoError(t, err)
	require.Equal(t, []int{2480, 3508}, []int{width, height})
	for name, payload := range map[string][]byte{
		"nothing": nil, "cut off": EncodePicture(1, 1)[:7], "no width": EncodePicture(0, 5), "no height": EncodePicture(5, 0),
		"too wide": EncodePicture(document.MaxPictureSide+1, 1), "too large": EncodePicture(10_000, 10_000), "a negative side": EncodePicture(-1, 1),
	} {
		_, _, err := DecodePicture(payload)
		require.ErrorIs(t, err, ErrBad, name)
	}
}
