package openai

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/embed"
)

// embedding decodes a vector strictly: encoding/json alone would read null as 0.
// A base64 string of little-endian float32 is read too; some servers send it unasked.
type embedding []float32

var errNotVector = errors.New("an embedding that is not an array of numbers")

// UnmarshalJSON takes syntactically valid JSON, as encoding/json gives it.
func (v *embedding) UnmarshalJSON(data []byte) error {
	text := strings.TrimSpace(string(data))
	if strings.HasPrefix(text, `"`) {
		return v.fromBase64(strings.Trim(text, `"`))
	}
	if !strings.HasPrefix(text, "[") || !strings.HasSuffix(text, "]") {
		return errNotVector
	}
	text = strings.TrimSpace(text[1 : len(text)-1])
	out := make([]float32, 0, strings.Count(text, ",")+1)
	for text != "" {
		number, rest, more := strings.Cut(text, ",")
		number = strings.TrimSpace(number)
		value, err := strconv.ParseFloat(number, 32)
		switch {
		case errors.Is(err, strconv.ErrRange), number == "null":
			// Too large for a float32, or a NaN that a careful encoder made null: Check names the text.
			value = math.NaN()
		case err != nil:
			return fmt.Errorf("%w: %.20s", errNotVector, number)
		}
		out = append(out, float32(value))
		if !more {
			break
		}
		text = rest
	}
	*v = out
	return nil
}

func (v *embedding) fromBase64(text string) error {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw)%4 != 0 {
		return errNotVector
	}
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	*v = out
	return nil
}

// badJSON names the one syntax error that has a meaning: NaN and Infinity are not JSON, but Python writes them.
func badJSON(err error) error {
	text := err.Error()
	if strings.Contains(text, "invalid character 'N'") || strings.Contains(text, "invalid character 'I'") {
		return fmt.Errorf("%w: %w", embed.ErrNotFinite, err)
	}
	return fmt.Errorf("reply is not what it should be: %w", err)
}
