package archtest

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floors are the versions below which a module has a published hole that touches us (from the Go vulnerability database).
var floors = map[string]string{
	"github.com/gin-gonic/gin":               "v1.9.1",
	"github.com/jackc/pgx/v5":                "v5.9.2",
	"github.com/xuri/excelize/v2":            "v2.11.0",
	"golang.org/x/net":                       "v0.55.0",
	"golang.org/x/text":                      "v0.39.0",
	"github.com/yuin/goldmark":               "v1.7.17",
	"go.opentelemetry.io/otel":               "v1.44.0",
	"go.opentelemetry.io/otel/sdk":           "v1.44.0",
	"go.opentelemetry.io/otel/exporters/...": "v1.43.0",
	"github.com/prometheus/client_golang":    "v1.11.1",
	"github.com/golang-jwt/jwt/v5":           "v5.2.2",
	"github.com/go-jose/go-jose/v4":          "v4.1.4",
	"github.com/klauspost/compress":          "v1.18.7",
	"github.com/ulikunitz/xz":                "v0.5.15",
	"google.golang.org/grpc":                 "v1.82.1",
	"github.com/MicahParks/jwkset":           "v0.6.0",
	"github.com/quic-go/quic-go":             "v0.59.1",
	"github.com/redis/go-redis/v9":           "v9.7.3",
}

// banned are modules that must not come in at all, with the reason.
var banned = map[string]string{
	"github.com/golang-jwt/jwt":       "old major, no fixes",
	"github.com/dgrijalva/jwt-go":     "CVE-2020-26160, abandoned",
	"github.com/fumiama/go-docx":      "AGPL-3",
	"github.com/gen2brain/go-fitz":    "AGPL-3",
	"seehuhn.de/go/pdf":               "GPL-3",
	"github.com/coder/hnsw":           "panics on delete and re-add",
	"github.com/ledongthuc/pdf":       "panics and loops on hostile files",
	"github.com/nguyenthenguyen/docx": "abandoned",
}

const goFloor = "go1.26.6"

// linked are the modules whose code is in some binary or test of ours, with their versions.
func linked(t *testing.T) map[string]string {
	t.Helper()
	deps, err := list("-deps", "-test", "work")
	require.NoError(t, err)
	modules := map[string]string{}
	for _, d := range deps {
		if d.Module != nil && d.Module.Version != "" {
			modules[d.Module.Path] = d.Module.Version
		}
	}
	require.Contains(t, modules, "github.com/prometheus/client_golang", "go list must see the modules, or this passes for nothing")
	return modules
}

func TestDependencyFloors(t *testing.T) {
	t.Parallel()
	for path, version := range linked(t) {
		for pattern, floor := range floors {
			if matches(pattern, path) {
				require.False(t, older(version, floor), "%s %s is below its floor %s", path, version, floor)
			}
		}
		require.NotContains(t, banned, path, "%s: %s", path, banned[path])
	}
	require.False(t, older(runtime.Version(), goFloor), "%s is below %s", runtime.Version(), goFloor)
}

// older compares dotted versions; a pre-release or pseudo-version of a number is older than the number itself.
func older(a, b string) bool {
	x, preX := numbers(a)
	y, preY := numbers(b)
	for i := range x {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return preX && !preY
}

func numbers(v string) (n [3]int, pre bool) {
	v = strings.TrimPrefix(strings.TrimPrefix(v, "go"), "v")
	v, _, _ = strings.Cut(v, "+")
	v, _, _ = strings.Cut(v, " ")
	v, suffix, _ := strings.Cut(v, "-")
	for i, part := range strings.SplitN(v, ".", 3) {
		n[i], _ = strconv.Atoi(part)
	}
	return n, suffix != ""
}

func TestOlder(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"v1.9.0", "v1.9.1", true}, {"v1.10.0", "v1.9.1", false}, {"v1.9.1", "v1.9.1", false}, {"v0.55.0", "v0.55.1", true},
		{"v1.9.1-rc1", "v1.9.1", true}, {"v0.0.0-20240101000000-abcdef", "v0.0.1", true}, {"v2.0.0+incompatible", "v1.0.0", false},
		{"go1.26.5", goFloor, true}, {"go1.26.8", goFloor, false}, {"go1.27", goFloor, false}, {"go1.26.8 X:nodwarf5", goFloor, false},
	} {
		require.Equal(t, tc.want, older(tc.a, tc.b), fmt.Sprintf("%s older than %s", tc.a, tc.b))
	}
}
