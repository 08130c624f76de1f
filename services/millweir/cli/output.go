package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// clean makes control characters visible, so that a server's text cannot drive the terminal.
func clean(s string) string {
	if strings.IndexFunc(s, unicode.IsControl) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) {
			fmt.Fprintf(&b, "\\x%02x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// short cuts text to n characters.
func short(s string, n int) string {
	r := []rune(clean(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// emit writes items as json (an array), jsonl (one a line) or by table.
func emit[T any](c *common, items []T, header string, row func(T) string) error {
	switch c.output {
	case "json":
		if items == nil {
			items = []T{}
		}
		return writeJSON(c.std.Out, items)
	case "jsonl":
		for _, it := range items {
			if err := json.NewEncoder(c.std.Out).Encode(it); err != nil {
				return fmt.Errorf("write output: %w", err)
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(c.std.Out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, header)
	for _, it := range items {
		_, _ = fmt.Fprintln(w, row(it))
	}
	return w.Flush()
}

// emitOne writes one item; its table form is given.
func emitOne(c *common, item any, table func(io.Writer)) error {
	switch c.output {
	case "json":
		return writeJSON(c.std.Out, item)
	case "jsonl":
		return json.NewEncoder(c.std.Out).Encode(item)
	}
	table(c.std.Out)
	return nil
}

// writeJSON writes indented JSON.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
