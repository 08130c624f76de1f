package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// defaultServer is where `make run` listens.
const defaultServer = "http://127.0.0.1:8081"

// common are the flags of every command.
type common struct {
	*flag.FlagSet
	server, output string
	yes            bool
	std            IO
}

// newFlags makes a command's flags with the common ones.
func newFlags(std IO, name string) *common {
	c := &common{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError), std: std}
	c.SetOutput(io.Discard)
	server := std.Getenv("MILLWEIR_SERVER")
	if server == "" {
		server = defaultServer
	}
	c.StringVar(&c.server, "server", server, "base URL of the gateway")
	c.StringVar(&c.output, "o", "table", "table, json or jsonl")
	c.BoolVar(&c.yes, "yes", false, "do not ask")
	return c
}

// parse reads flags that may stand before, between and after the arguments; it answers the arguments.
func (c *common) parse(args []string) ([]string, error) {
	var rest []string
	for {
		if err := c.FlagSet.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				c.SetOutput(c.std.Out)
				c.PrintDefaults()
				return nil, flag.ErrHelp
			}
			return nil, &usageError{err.Error()}
		}
		args = c.Args()
		if len(args) == 0 {
			break
		}
		rest = append(rest, args[0])
		args = args[1:]
	}
	if c.output != "table" && c.output != "json" && c.output != "jsonl" {
		return nil, &usageError{fmt.Sprintf("-o %s: allowed are table, json, jsonl", c.output)}
	}
	c.server = strings.TrimRight(c.server, "/")
	return rest, nil
}

// one demands exactly one argument.
func one(args []string, what string) (string, error) {
	if len(args) != 1 {
		return "", &usageError{fmt.Sprintf("needs exactly one %s, got %d", what, len(args))}
	}
	return args[0], nil
}
