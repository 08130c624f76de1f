package chart

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
)

var (
	update = flag.Bool("update", false, "rewrite files/settings.yaml and values.schema.json of the chart")
	outDir = flag.String("out", "", "folder for the rendered manifests of every set of values")
)

// known are the settings of every service, by its own word.
var known = map[string][]Setting{}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := askServices(context.Background()); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// askServices asks every service for its settings; `make chart` has built them.
func askServices(ctx context.Context) error {
	names, err := services()
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == commandLine {
			continue
		}
		if known[name], err = settingsOf(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
