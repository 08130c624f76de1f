package fsck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/telemetry"
)

// judgeText is I36 for one text of the database.
func (c *checker) judgeText(where, text string) {
	if text == "" {
		return
	}
	c.judged("I36")
	if what := c.secret(text); what != "" {
		c.bad("I36", where, "it holds %s", what)
	}
}

// scanLogs is I36 for log files, line by line.
func (c *checker) scanLogs(context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(c.e.Logs)) {
		lines := bufio.NewReaderSize(c.e.Logs[name], 1<<16)
		for n := 1; ; n++ {
			line, err := lines.ReadString('\n')
			c.judged("I36")
			if what := c.secret(line); what != "" {
				c.bad("I36", name, "line %d holds %s", n, what)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
		}
	}
	return nil
}

// secret says what kind of secret stands in a text, without repeating it.
func (c *checker) secret(text string) string {
	for i, canary := range c.o.Canaries {
		if canary != "" && strings.Contains(text, canary) {
			return fmt.Sprintf("planted secret %d", i+1)
		}
	}
	text = strings.ReplaceAll(text, `"`+telemetry.Hidden+`"`, telemetry.Hidden) // hidden already
	if hidden := telemetry.Redact(text); hidden != text {
		at := 0
		for at < len(text) && at < len(hidden) && text[at] == hidden[at] {
			at++
		}
		return fmt.Sprintf("something that looks like a secret, after %q", text[max(0, at-24):at])
	}
	return ""
}
