package archtest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What only some programs link: libraries and what connects to servers, by the word that a failure shows.
var (
	pdfEngine  = []string{"github.com/klippa-app/go-pdfium/webassembly", "github.com/tetratelabs/wazero/..."}
	pdfLibrary = []string{"github.com/ebitengine/purego/..."} // libpdfium.so: a C library changes how a program confines itself
	sqlite     = []string{"modernc.org/sqlite/...", "modernc.org/libc/..."}
	embedded   = []string{"github.com/alicebob/miniredis/v2/...", "github.com/twmb/franz-go/..."} // Redis and Kafka in the process
	tokenizer  = []string{"github.com/tiktoken-go/tokenizer/..."}
	allVocabs  = []string{"github.com/tiktoken-go/tokenizer"} // links every vocabulary, 9 MB; the package codec has them one by one
	vectors    = []string{prefix + "pkg/ingest/vector/...", prefix + "pkg/ingest/embed/..."}
	redis      = []string{"github.com/redis/rueidis/...", prefix + "pkg/streammq/..."}
	kafka      = []string{"github.com/IBM/sarama/..."}
	rabbit     = []string{"github.com/rabbitmq/amqp091-go"}
	gin        = []string{"github.com/gin-gonic/gin/..."}
	ofTests    = []string{"github.com/zitadel/oidc/v3/...", "github.com/chromedp/chromedp/..."} // an identity provider, and a browser's driver
	everything = [][]string{pdfEngine, sqlite, embedded, tokenizer, vectors, redis, kafka, gin, rabbit, allVocabs, ofTests, pdfLibrary}
)

// links says of each program what it links of all that, and how many packages at most.
var links = map[string]struct {
	has  [][]string
	most int
}{
	"outbox-relay":     {[][]string{kafka}, 560},
	"rehydrator":       {[][]string{redis, kafka, rabbit, pdfEngine, tokenizer, vectors}, 835},
	"stream-mirror":    {[][]string{rabbit}, 560},
	"stream-worker":    {[][]string{redis, pdfEngine, tokenizer, vectors}, 760},
	"kafka-consumer":   {[][]string{kafka, pdfEngine, tokenizer, vectors, redis}, 830}, // Redis: dead letters that are pending (design D11)
	"reclaimer":        {[][]string{redis, kafka, tokenizer, vectors}, 775},            // it serves either transport
	"ingest-api":       {[][]string{redis, kafka, vectors, gin}, 765},
	"telegram-gateway": {[][]string{redis, kafka, vectors}, 760},
	"millweir":         {everything[:len(everything)-3], 980},
	// The command line without dev: it asks servers and opens databases, and serves nothing.
	"millweir/millweir-cli": {[][]string{kafka, redis, rabbit, vectors}, 720},
	// The child of a worker with PDF_ENGINE=native: the readers, and no server.
	"millweir/pdf-reader": {[][]string{pdfLibrary}, 620},
}

func TestServicesLinkWhatTheyRun(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.path(), "services/")
		if p.Name != "main" || name == p.path() {
			continue
		}
		want, known := links[name]
		require.True(t, known, "%s: say in links what it links", name)
		seen++
		deps, err := list("-deps", p.ImportPath)
		require.NoError(t, err)
		for _, part := range everything {
			found := linksOf(deps, part)
			if in := contains(want.has, part); in {
				require.NotEmpty(t, found, "%s is said to link %s", name, part)
			} else {
				require.Empty(t, found, "%s links what it does not run", name)
			}
		}
		require.LessOrEqual(t, len(deps), want.most, "packages that %s links", name)
	}
	require.Len(t, links, seen)
}

// linksOf are the packages that match one of the patterns.
func linksOf(deps []listed, patterns []string) (found []string) {
	for _, d := range deps {
		if matchesAny(patterns, d.ImportPath) {
			found = append(found, d.ImportPath)
		}
	}
	return found
}

// contains reports whether a part is among others.
func contains(parts [][]string, part []string) bool {
	for _, p := range parts {
		if &p[0] == &part[0] {
			return true
		}
	}
	return false
}
