package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/millweir/millweir/pkg/labserver"
)

const head = "mode: atomic\n"

func line(file, rest string) string { return prefix + file + ":1.1,2.2 " + rest + "\n" }

func TestGate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, profile string
		below         string
		want          string
	}{
		{"enough", head + line("pkg/a/a.go", "7 1") + line("pkg/a/b.go", "3 0"), "", "coverage 70.0 % of 10 statements in 1 packages"},
		{"too little", head + line("pkg/a/a.go", "6 1") + line("pkg/a/b.go", "4 0"), "pkg/a", "60.0 %"},
		{"rules want more", head + line("pkg/taskstate/a.go", "94 1") + line("pkg/taskstate/b.go", "6 0"), "pkg/taskstate", "94.0 %"},
		{"another binary hit it", head + line("pkg/a/a.go", "5 0") + line("pkg/a/a.go", "5 2"), "", "coverage 100.0 % of 5 statements"},
		{
			"extract counts as one", head + line("pkg/ingest/extract/child/a.go", "2 0") + line("pkg/ingest/extract/html/a.go", "8 1"), "",
			"coverage 80.0 % of 10 statements in 1 packages",
		},
		{"exempt", head + line("pkg/a/a.go", "1 1") + line("proto/x.pb.go", "9 0") + line("services/x/main.go", "9 0") +
			line("pkg/labserver/x.go", "9 0") + line("scripts/bench/x.go", "9 0") + line("pkg/taskstate/taskstatetest/x.go", "9 0"), "",
			"coverage 100.0 % of 1 statements in 1 packages"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := gate(strings.NewReader(tc.profile), &out, false)
			if tc.below == "" && err != nil {
				t.Fatalf("got %v, want no error", err)
			}
			if tc.below != "" && (!errors.Is(err, errBelow) || !strings.Contains(err.Error(), tc.below)) {
				t.Fatalf("got %v, want %s below its floor", err, tc.below)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("got %q, want %q in it", out.String(), tc.want)
			}
		})
	}
	for _, bad := range []string{"", head, head + "x y\n", head + "x:1.1,2.2 a b\n"} {
		if err := gate(strings.NewReader(bad), &bytes.Buffer{}, false); err == nil {
			t.Errorf("profile %q: no error", bad)
		}
	}
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
