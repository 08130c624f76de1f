package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// The Java original writes dead letters, and some replays, in the codec of its Redis client, which is Kryo 5 unless it was
// set to another: each name and value is one object, a tag and its data. Only the classes that occur there are read.
const (
	kryoNull    = 0
	kryoNamed   = 1 // a class by its name
	kryoInteger = 2
	kryoString  = 3
	kryoBoolean = 5
	kryoLong    = 9
	kryoDouble  = 10

	kryoDepth = 16 // of objects in objects
)

// IsKryo tells whether the names of an entry's fields are objects of Kryo: texts begin with its tag, and no name of ours does.
func IsKryo(fields []string) bool {
	return len(fields) > 0 && fields[0] != "" && fields[0][0] == kryoString
}

// kryoFields are the fields of such an entry as text: numbers in decimal, maps and lists as JSON. A null is left out.
// Its error wraps ErrMalformed.
func kryoFields(fields []string) ([]string, error) {
	plain := make([]string, 0, len(fields))
	for i := 0; i+1 < len(fields); i += 2 {
		name, err := KryoText(fields[i])
		if err != nil {
			return nil, fmt.Errorf("%w: name of field %d: %w", model.ErrMalformed, i/2, err)
		}
		value, err := KryoText(fields[i+1])
		if err != nil {
			return nil, fmt.Errorf("%w: field %q: %w", model.ErrMalformed, model.Clip(name.Text, 32), err)
		}
		if !name.Null && !value.Null {
			plain = append(plain, name.Text, value.Text)
		}
	}
	return plain, nil
}

// KryoValue is one object: a text, or another value as text.
type KryoValue struct {
	Text   string
	Null   bool
	Quoted bool // it is a text: in JSON it has quotes
}

func (v KryoValue) json() json.RawMessage {
	switch {
	case v.Null:
		return json.RawMessage("null")
	case v.Quoted:
		return appendJSON(nil, v.Text)
	}
	return json.RawMessage(v.Text)
}

func KryoText(s string) (KryoValue, error) {
	k := kryo{text: s}
	v := k.value(0)
	if k.broken == nil && k.at != len(s) {
		k.fail("more than one object")
	}
	return v, k.broken
}

// kryo is a place in an object.
type kryo struct {
	text   string
	at     int
	named  []string // classes that were named so far: a later one is a number
	broken error    // it is not what it should be: all that follows is zero from here on
}

func (k *kryo) fail(what string) {
	if k.broken == nil {
		k.broken = fmt.Errorf("kryo: %s at byte %d of %d", what, k.at, len(k.text))
	}
	k.at = len(k.text)
}

func (k *kryo) value(depth int) KryoValue {
	tag := k.varint()
	if tag == kryoNull {
		return KryoValue{Null: true}
	}
	class := ""
	if tag == kryoNamed {
		class = k.class()
	}
	return k.of(tag, class, depth)
}

// of reads a value of a class, which is known by its tag or its name.
func (k *kryo) of(tag uint64, class string, depth int) KryoValue {
	switch {
	case tag == kryoInteger, tag == kryoLong:
		n := k.varint()
		return KryoValue{Text: strconv.FormatInt(int64(n>>1)^-int64(n&1), 10)} //nolint:gosec // zigzag
	case tag == kryoString:
		text, null := k.str()
		return KryoValue{Text: text, Null: null, Quoted: true}
	case tag == kryoBoolean:
		return KryoValue{Text: strconv.FormatBool(k.byte() != 0)}
	case tag == kryoDouble:
		var bits uint64
		for shift := 0; shift < 64; shift += 8 {
			bits |= uint64(k.byte()) << shift
		}
		return k.asJSON(math.Float64frombits(bits))
	case depth > kryoDepth:
		k.fail("objects in objects")
	case class == "java.util.ArrayList":
		return k.list(depth)
	case class == "java.util.HashMap", class == "java.util.LinkedHashMap", class == "java.util.TreeMap":
		return k.object(depth)
	default:
		k.fail("class " + strconv.FormatUint(tag, 10) + " " + model.Clip(class, 64) + " is not known")
	}
	return KryoValue{}
}

// class reads the name of a class, or its number if it was named before.
func (k *kryo) class() string {
	number := k.varint()
	if number == uint64(len(k.named)) {
		name, _ := k.str()
		k.named = append(k.named, name)
	}
	if k.broken != nil || number >= uint64(len(k.named)) {
		k.fail("unknown number of a class")
		return ""
	}
	return k.named[number]
}

func (k *kryo) asJSON(v any) KryoValue {
	if k.broken != nil {
		return KryoValue{}
	}
	text, err := json.Marshal(v)
	if err != nil {
		k.fail(err.Error())
	}
	return KryoValue{Text: string(text)}
}

// size is of a map or list: one more than it has is written.
func (k *kryo) size(n uint64) int {
	if n == 0 || n > uint64(len(k.text)) {
		k.fail("size of an object")
		return 0
	}
	return int(n - 1) //nolint:gosec // at most the length of the text
}

func (k *kryo) object(depth int) KryoValue {
	values := map[string]json.RawMessage{}
	for n := k.size(k.varint()); n > 0 && k.broken == nil; n-- {
		name := k.value(depth + 1)
		values[name.Text] = k.value(depth + 1).json()
	}
	return k.asJSON(values)
}

// list reads its elements, each with its class, or all of one class, which comes first, and whether some are null.
func (k *kryo) list(depth int) KryoValue {
	alike, most := k.flagged()
	n := k.size(most)
	values := []json.RawMessage{}
	if !alike {
		for ; n > 0 && k.broken == nil; n-- {
			values = append(values, k.value(depth+1).json())
		}
		return k.asJSON(values)
	}
	tag, class := k.varint(), ""
	if tag == kryoNamed {
		class = k.class()
	}
	nulls := k.byte() != 0 && tag != kryoString // a text says it by itself
	for ; n > 0 && k.broken == nil; n-- {
		if nulls && k.byte() == 0 {
			values = append(values, json.RawMessage("null"))
			continue
		}
		values = append(values, k.of(tag, class, depth+1).json())
	}
	return k.asJSON(values)
}

// flagged reads a number whose first byte has a flag in bit 7, and in bit 6 whether more follow.
func (k *kryo) flagged() (flag bool, n uint64) {
	first := uint64(k.byte())
	n = first & 0x3f
	if first&0x40 != 0 {
		n |= k.varint() << 6
	}
	return first&0x80 != 0, n
}

// str reads a text: ASCII whose last byte has bit 7 set, or its length and that many UTF-16 units, each as UTF-8 writes it.
func (k *kryo) str() (text string, null bool) {
	if k.at < len(k.text) && k.text[k.at]&0x80 == 0 {
		for i := k.at; i < len(k.text); i++ {
			if c := k.text[i]; c&0x80 != 0 {
				b := []byte(k.text[k.at : i+1])
				b[len(b)-1] = c & 0x7f
				k.at = i + 1
				return string(b), false
			}
		}
		k.fail("a text without an end")
		return "", false
	}
	_, length := k.flagged()
	switch {
	case length == 0:
		return "", true
	case length-1 > uint64(len(k.text)-k.at):
		k.fail("a text that is too long")
		return "", false
	}
	units := make([]uint16, 0, length-1)
	for ; length > 1 && k.broken == nil; length-- {
		units = append(units, k.unit())
	}
	return string(utf16.Decode(units)), false
}

// unit reads one UTF-16 unit; a half of a pair is written by itself, which UTF-8 does not know.
func (k *kryo) unit() uint16 {
	switch b := k.byte(); b >> 4 {
	case 0xc, 0xd:
		return uint16(b&0x1f)<<6 | uint16(k.byte()&0x3f)
	case 0xe:
		high := uint16(b&0x0f)<<12 | uint16(k.byte()&0x3f)<<6
		return high | uint16(k.byte()&0x3f)
	default:
		return uint16(b)
	}
}

// varint reads seven bits a byte, the lowest first.
func (k *kryo) varint() uint64 {
	var n uint64
	for shift := 0; shift < 64; shift += 7 {
		b := k.byte()
		n |= uint64(b&0x7f) << shift
		if b&0x80 == 0 {
			return n
		}
	}
	k.fail("a number of more than 64 bits")
	return 0
}

func (k *kryo) byte() byte {
	if k.at >= len(k.text) {
		k.fail("it breaks off")
		return 0
	}
	k.at++
	return k.text[k.at-1]
}
