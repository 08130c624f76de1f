package process

import (
	"encoding"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// ErrBadSetting is wrapped by every error about a setting; the text begins with the variable's name.
var ErrBadSetting = errors.New("bad setting")

// settingError is one problem; its text is only the problem, its kind is ErrBadSetting.
type settingError struct{ text string }

func (e *settingError) Error() string        { return e.text }
func (e *settingError) Is(target error) bool { return target == ErrBadSetting }

// BadSetting returns a problem with the variable name, for use in Validate:
// BadSetting("HTTP_ADDR", "must be a loopback address with AUTH_MODE=none").
func BadSetting(name, format string, args ...any) error {
	return &settingError{text: name + ": " + fmt.Sprintf(format, args...)}
}

// Load reads the environment into a T: a struct whose exported fields carry the tags below
// (a named struct field without a tag holds the settings of a part and is gone into; its Validate is T's to call):
//
//	envconfig:"NAME"      the variable
//	default:"…"           its value when it is not set
//	required:"true"       it must be set
//	allowed:"1..10"       the allowed range ("0..", "1s..1h") or values ("redis|kafka"); checked here
//	desc:"…"              one line for --help-env and .env.example
//
// Types are string, bool, int…, uint…, float…, time.Duration ("90s"), []string (comma), Secret, DSN and all
// that implement encoding.TextUnmarshaler. A set but empty variable of a type other than text counts as not set.
// A Secret or DSN can also come from a file that NAME_FILE names.
// After the fields, T's Validate() error is called if it has one (also on *T).
// The error joins all problems, each wrapping ErrBadSetting and beginning with the variable's name.
func Load[T any]() (T, error) {
	var cfg T
	err := loadInto(&cfg)
	return cfg, err
}

func loadInto(cfg any) error {
	var problems []error
	for _, s := range settingsOf(cfg) {
		if err := s.load(); err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	if v, ok := cfg.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return &invalidError{err}
		}
	}
	return nil
}

// invalidError makes whatever Validate returned an ErrBadSetting.
type invalidError struct{ error }

func (e *invalidError) Unwrap() error        { return e.error }
func (e *invalidError) Is(target error) bool { return target == ErrBadSetting }

// setting is one field of a Config with its tags.
type setting struct {
	name, fallback, allowed, desc string
	required                      bool
	field                         reflect.StructField
	value                         reflect.Value // addressable when the Config was given by pointer
}

// settingsOf lists the fields that carry an envconfig tag, in order; a named struct field without a tag is a part's own
// Config and is gone into. cfg is a struct or a pointer to one.
func settingsOf(cfg any) []setting {
	v := reflect.ValueOf(cfg)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	var all []setting
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("envconfig")
		if name == "" && f.IsExported() && !f.Anonymous && f.Type.Kind() == reflect.Struct {
			all = append(all, settingsOf(v.Field(i).Addr().Interface())...) // a part's own Config
			continue
		}
		if name == "" || name == "-" || !f.IsExported() {
			continue
		}
		all = append(all, setting{
			name: name, fallback: f.Tag.Get("default"), allowed: f.Tag.Get("allowed"), desc: f.Tag.Get("desc"),
			required: f.Tag.Get("required") == "true", field: f, value: v.Field(i),
		})
	}
	return all
}

// load sets the field. Each field goes through envconfig alone, in a struct made for it,
// because envconfig stops at the first problem and an operator wants to see all of them.
func (s setting) load() error {
	raw, set := os.LookupEnv(s.name)
	if set && raw == "" && !s.textual() {
		if err := os.Unsetenv(s.name); err != nil {
			return BadSetting(s.name, "%v", err)
		}
		set = false
	}
	if done, err := s.loadFile(set && raw != ""); done || err != nil {
		return err
	}
	if !set && s.fallback == "" {
		if s.required {
			return BadSetting(s.name, "is not set: %s", s.desc)
		}
		return nil // keeps what the caller put there
	}
	one := reflect.New(reflect.StructOf([]reflect.StructField{s.field}))
	if err := envconfig.Process("", one.Interface()); err != nil {
		return s.parseError(err)
	}
	s.value.Set(one.Elem().Field(0))
	return s.check()
}

// loadFile reads NAME_FILE into a secret.
func (s setting) loadFile(alsoSet bool) (done bool, err error) {
	holder, ok := s.value.Addr().Interface().(hidden)
	if !ok {
		return false, nil
	}
	path := os.Getenv(s.name + "_FILE")
	if path == "" {
		return false, nil
	}
	if alsoSet {
		return true, BadSetting(s.name, "is set and so is %s_FILE: use one of them", s.name)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return true, BadSetting(s.name+"_FILE", "%v", err)
	}
	holder.set(strings.TrimRight(string(b), "\r\n"))
	return true, nil
}

// textual types take the empty string as a value of theirs.
func (s setting) textual() bool {
	_, hides := s.value.Addr().Interface().(hidden)
	return hides || s.field.Type.Kind() == reflect.String || s.field.Type.Kind() == reflect.Slice
}

// parseError says what was expected; the value is shown unless it is secret.
func (s setting) parseError(err error) error {
	var pe *envconfig.ParseError
	if !errors.As(err, &pe) {
		return BadSetting(s.name, "%v", err)
	}
	return BadSetting(s.name, "%q is not %s%s", pe.Value, s.typeName(), s.allowedText())
}

func (s setting) allowedText() string {
	if s.allowed == "" {
		return ""
	}
	return ", allowed: " + s.allowed
}

func (s setting) typeName() string {
	t := s.field.Type
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration like 500ms or 10m"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		return "a whole number"
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
		return "a whole number from 0 up"
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Slice:
		return "a list with commas"
	default:
		return "valid"
	}
}

// CheckAllowed compares every field of a Config with its allowed tag, as Load does, for one that was made in Go.
func CheckAllowed(cfg any) error {
	var problems []error
	for _, s := range settingsOf(addressable(cfg)) {
		problems = append(problems, s.check())
	}
	return errors.Join(problems...)
}

// check compares the field with its allowed tag.
func (s setting) check() error {
	if s.allowed == "" {
		return nil
	}
	if low, high, ok := strings.Cut(s.allowed, ".."); ok {
		v, err := s.number(s.text())
		if err != nil {
			return BadSetting(s.name, "%v", err)
		}
		lo, errLow := s.bound(low, v)
		hi, errHigh := s.bound(high, v)
		if err := errors.Join(errLow, errHigh); err != nil {
			panic("tag allowed of " + s.name + ": " + err.Error()) // a programmer's mistake
		}
		if v < lo || v > hi {
			return BadSetting(s.name, "%s is out of range, allowed: %s", s.text(), s.allowed)
		}
		return nil
	}
	for _, a := range strings.Split(s.allowed, "|") {
		if s.text() == a {
			return nil
		}
	}
	return BadSetting(s.name, "%q is unknown, allowed: %s", s.text(), s.allowed)
}

// bound is an end of a range; an open end is the value itself.
func (s setting) bound(text string, v float64) (float64, error) {
	if text == "" {
		return v, nil
	}
	return s.number(text)
}

func (s setting) number(text string) (float64, error) {
	if s.field.Type == reflect.TypeFor[time.Duration]() {
		if text == "0" {
			return 0, nil
		}
		d, err := time.ParseDuration(text)
		return float64(d), err
	}
	return strconv.ParseFloat(text, 64)
}

// text is the field's value as it would stand in the environment; secrets are hidden.
func (s setting) text() string {
	switch v := s.value.Interface().(type) {
	case fmt.Stringer: // time.Duration, Secret, DSN
		return v.String()
	case encoding.TextMarshaler:
		b, err := v.MarshalText()
		if err == nil {
			return string(b)
		}
	case []string:
		return strings.Join(v, ",")
	}
	return fmt.Sprint(s.value.Interface())
}
