package process

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
)

// PrintHelp lists the settings of the configs: name, default, allowed values, meaning.
func PrintHelp(w io.Writer, configs ...any) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if _, err := fmt.Fprintln(tw, "VARIABLE\tDEFAULT\tALLOWED\tMEANING"); err != nil {
		return err
	}
	for _, s := range allSettings(configs) {
		fallback := s.defaultText()
		if s.required {
			fallback = "(required)"
		}
		if _, err := fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", s.name, fallback, s.allowedOrType(), s.desc); err != nil {
			return err
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nSecrets and addresses with a login can also come from a file: NAME_FILE=/path.\n"+
		"Traces, and metrics of the partitioned queue, go to OTEL_EXPORTER_OTLP_ENDPOINT if it is set; "+
		"the other OTEL_* variables have their standard meaning.")
	return err
}

// PrintEnv prints the settings as NAME=value lines, secrets hidden.
func PrintEnv(w io.Writer, configs ...any) error {
	for _, s := range allSettings(configs) {
		if _, err := fmt.Fprintf(w, "%s=%s\n", s.name, s.text()); err != nil {
			return err
		}
	}
	return nil
}

// Effective is a setting as a process has it.
type Effective struct {
	Name    string
	Value   string // secrets and logins of addresses hidden
	Default string // empty: none
	Allowed string // or the type
	Meaning string
}

// Changed reports whether the setting has another value than its default.
func (e Effective) Changed() bool { return e.Value != e.Default }

// EffectiveSettings lists the settings of configs, by name.
func EffectiveSettings(configs ...any) []Effective {
	var out []Effective
	for _, s := range allSettings(configs) {
		out = append(out, Effective{Name: s.name, Value: s.text(), Default: s.normalDefault(), Allowed: s.allowedOrType(), Meaning: s.desc})
	}
	slices.SortFunc(out, func(a, b Effective) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b Effective) bool { return a.Name == b.Name })
}

// Section is a part of .env.example.
type Section struct {
	Title  string
	Config any // a Config struct or a pointer to one
}

// CommonSettings are the settings that every service has, as a Config for WriteEnvExample and PrintHelp.
func CommonSettings() any { return common{} }

// WriteEnvExample writes every setting of the sections once, commented out with its default, so that a copy changes nothing.
// A setting that two sections define with different defaults or allowed values is an error that names it.
func WriteEnvExample(w io.Writer, sections ...Section) error {
	seen := map[string]setting{}
	out := bufio.NewWriter(w)
	for _, sec := range sections {
		title := "\n# ---- " + sec.Title + "\n"
		for _, s := range settingsOf(addressable(sec.Config)) {
			if before, ok := seen[s.name]; ok {
				if before.defaultText() != s.defaultText() || before.allowed != s.allowed {
					return fmt.Errorf("%s: %q, allowed %q in one service and %q, allowed %q in %s",
						s.name, before.defaultText(), before.allowed, s.defaultText(), s.allowed, sec.Title)
				}
				continue
			}
			seen[s.name] = s
			_, _ = fmt.Fprintf(out, "%s%s# %s=%s\n", title, s.comment(), s.name, s.defaultText()) // Flush tells of errors
			title = ""
		}
	}
	return out.Flush()
}

// comment is the setting's meaning and allowed values as comment lines.
func (s setting) comment() string {
	text := s.desc
	if s.required {
		text += " (required)"
	}
	if s.allowed != "" {
		text += " [" + s.allowed + "]"
	}
	if text == "" {
		return ""
	}
	return "# " + text + "\n"
}

// defaultText is the default as it would be written in the environment.
func (s setting) defaultText() string {
	if s.fallback != "" {
		return s.fallback
	}
	if s.value.IsZero() {
		return ""
	}
	return s.text()
}

func (s setting) allowedOrType() string {
	if s.allowed != "" {
		return s.allowed
	}
	switch s.value.Addr().Interface().(type) {
	case *Secret:
		return "a secret"
	case *DSN:
		return "an address" // with or without a login
	}
	switch name := s.typeName(); name {
	case "valid":
		return "text"
	default:
		return name
	}
}

// allSettings joins the settings of several configs, the first of each name.
func allSettings(configs []any) []setting {
	seen := map[string]bool{}
	var all []setting
	for _, c := range configs {
		for _, s := range settingsOf(addressable(c)) {
			if !seen[s.name] {
				seen[s.name] = true
				all = append(all, s)
			}
		}
	}
	return all
}

// changedSettings are the settings that differ from their defaults, for the line at the start.
func changedSettings(configs ...any) []slog.Attr {
	var attrs []slog.Attr
	for _, s := range allSettings(configs) {
		if text := s.text(); text != s.normalDefault() && strings.TrimSpace(text) != "" {
			attrs = append(attrs, slog.String(s.name, text))
		}
	}
	return attrs
}
