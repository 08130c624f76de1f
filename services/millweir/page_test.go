package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/millweir/admin"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/submit"
)

var (
	update = flag.Bool("update", false, "write the page anew")
	man    = flag.String("man", "", "write the man pages into this folder")
)

// page is where the page of the command line lies.
const page = "../../deploy/docs/cli.md"

// commandLine is what Run runs, in an empty environment.
func commandLine() *cobra.Command {
	root := cli.Root(&cli.App{IO: cli.IO{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }}}, cli.Commands, submit.Commands, admin.Commands, devCommand)
	root.InitDefaultHelpCmd()
	root.DisableAutoGenTag = true
	return root
}

// pageOf is the page of the whole command line.
func pageOf(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# The command line\n\nMade from the commands by `make cli-docs`, which makes man pages too; change those, not this page.\n" +
		"What the verbs do is in [contract §9](contract.md#9-make-targets-and-the-command-line).\n\n## Everywhere\n\n```\n" +
		root.PersistentFlags().FlagUsages() + "```\n")
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		for _, verb := range c.Commands() {
			if verb.Name() == "help" || verb.Name() == "completion" {
				continue
			}
			if verb.HasSubCommands() {
				each(verb)
				continue
			}
			fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n\n%s\n", verb.CommandPath(), verb.UseLine(), verb.Short)
			if flags := verb.NonInheritedFlags().FlagUsages(); flags != "" {
				b.WriteString("\n" + flags)
			}
			b.WriteString("```\n")
		}
	}
	each(root)
	return b.String()
}

// The page has every verb and flag that there is. After a wished change: make cli-docs.
func TestCommandLinePageIsUpToDate(t *testing.T) {
	t.Parallel()
	made := pageOf(commandLine())
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(made), 0o644)) //nolint:gosec // a page for everybody
	}
	kept, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, made, string(kept), "make cli-docs")
	require.Contains(t, made, "## millweir submit\n")
}

// Every verb has a man page.
func TestCommandLineHasManPages(t *testing.T) {
	t.Parallel()
	dir := *man
	if dir == "" {
		dir = t.TempDir()
	}
	require.NoError(t, os.MkdirAll(dir, 0o700))
	head := &doc.GenManHeader{Title: "MILLWEIR", Section: "1", Source: "Millweir", Date: new(time.Unix(0, 0))}
	require.NoError(t, doc.GenManTree(commandLine(), head, dir))
	for _, name := range []string{"millweir.1", "millweir-submit.1", "millweir-tasks-list.1", "millweir-fsck.1", "millweir-dev.1"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Contains(t, string(text), ".SH SYNOPSIS", name)
	}
}
