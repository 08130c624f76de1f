package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// attacks are the cases that other systems of this kind fell to, by number: the tests that hold each, as package folder and name,
// or why there is nothing to attack yet. TestEveryAttackHasItsTest looks for them in the source.
var attacks = map[int]struct {
	what  string
	tests []string // folder.TestName, the folder from the repository's root
	later string   // why not yet
}{
	1:  {what: "a URL that redirects to the cloud's metadata address", later: noURLs},
	2:  {what: "a DNS answer that changes between check and use", later: noURLs},
	3:  {what: "URLs that two parsers read differently", later: noURLs},
	4:  {what: "file, gopher and ftp URLs", later: noURLs},
	5:  {what: "a second fetching address without the guard", later: noURLs},
	6:  {what: "a user who names the embedding or vector service", later: "both are settings of the operator, no route takes them"},
	7:  {what: "information on remote files without login", later: noURLs},
	8:  {what: "another user's document by its id", tests: []string{gatewayTests + "TestA08", gatewayTests + "TestRouteWalker"}},
	9:  {what: "another user's file in one's own base", tests: []string{gatewayTests + "TestA09"}},
	10: {what: "another user's file through an object of one's own", tests: []string{gatewayTests + "TestA10"}},
	11: {what: "filters that widen the list", tests: []string{gatewayTests + "TestA11"}},
	12: {what: "side features for another user's object", later: "there are none; TestRouteWalker will meet them"},
	13: {what: "keys made out of other tokens", later: "nothing is shared by links yet; keys are random (pkg/auth TestSecretsHaveTheirForm)"},
	14: {what: "names of bases that are paths", tests: []string{gatewayTests + "TestA14"}},
	15: {what: "names of attachments that are paths", later: "no reader for e-mail yet"},
	16: {what: "names in archives that are paths", tests: []string{extractTests + "TestA16"}},
	17: {what: "links in uploaded folders", later: "folders are not taken"},
	18: {what: "names out of the reading child", tests: []string{extractTests + "TestA18"}},
	19: {what: "documents that grow", tests: []string{extractTests + "TestA19"}},
	20: {what: "sizes that lie", tests: []string{extractTests + "TestA20"}},
	21: {what: "row numbers of workbooks", later: "no reader for workbooks yet"},
	22: {what: "entities and endless nesting", tests: []string{extractTests + "TestA22"}},
	23: {what: "HTML that its parser chokes on", tests: []string{extractTests + "TestA23"}},
	24: {what: "archives of a million names", tests: []string{extractTests + "TestA24"}},
	25: {what: "forms of a hundred thousand parts or headers", tests: []string{gatewayTests + "TestA25"}},
	26: {what: "programs under another name", tests: []string{gatewayTests + "TestA26", extractTests + "TestA26"}},
	27: {what: "scripts in titles, names and errors", tests: []string{gatewayTests + "TestA27"}},
	28: {what: "names that break out of headers", tests: []string{gatewayTests + "TestA28"}},
	29: {what: "invented addresses in X-Forwarded-For", tests: []string{gatewayTests + "TestA29"}},
	30: {what: "forged tokens", tests: []string{gatewayTests + "TestA30", "pkg/auth/token.TestForgedTokens"}},
	31: {what: "another user's Idempotency-Key", tests: []string{gatewayTests + "TestA31"}},
	32: {what: "changes sent by other sites", tests: []string{gatewayTests + "TestCrossSiteChangesAreRefused"}},
	33: {what: "work before anybody knows who asks", tests: []string{gatewayTests + "TestA33", gatewayTests + "TestAnonymousUploadIsNotRead"}},
	34: {what: "line ends and escape codes in logs", tests: []string{gatewayTests + "TestA34"}},
	35: {what: "giant trace headers", tests: []string{gatewayTests + "TestA35"}},
	36: {what: "bodies of 4 GiB", tests: []string{gatewayTests + "TestA36"}},
	37: {what: "deliveries that lie", tests: []string{"services/millweir/e2e.TestA37"}},
	38: {what: "hidden text that speaks to a language model", later: "segments name their source and page; hidden text is not marked yet"},
}

const (
	noURLs       = "documents are not fetched from URLs"
	gatewayTests = "services/ingest-api/gateway."
	extractTests = "pkg/ingest/extract."
)

func TestEveryAttackHasItsTest(t *testing.T) {
	t.Parallel()
	sources := map[string]string{} // folder → its tests' text
	source := func(folder string) string {
		if text, read := sources[folder]; read {
			return text
		}
		files, err := filepath.Glob(filepath.Join("..", "..", "..", folder, "*_test.go"))
		require.NoError(t, err)
		var all strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			all.Write(text)
		}
		sources[folder] = all.String()
		return sources[folder]
	}
	for n := 1; n <= 38; n++ {
		a, listed := attacks[n]
		require.True(t, listed && a.what != "", "A%d is not listed", n)
		require.NotEqual(t, len(a.tests) == 0, a.later == "", "A%d has tests or a reason why not", n)
		for _, test := range a.tests {
			folder, name, _ := strings.Cut(test, ".")
			require.Regexp(t, regexp.MustCompile(fmt.Sprintf(`(?m)^func %s\(t \*testing\.T\)`, name)), source(folder), "A%d", n)
		}
	}
	require.Len(t, attacks, 38)
}
