package gateway

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// pairs are user ids that look or compare alike somewhere; fit says whether the second one can be a user's at all.
var pairs = []struct {
	name, a, b string
	fit        bool
}{
	{"a space at the end", "anna", "anna ", false},
	{"spaces at the end", "anna", "anna   ", false},
	{"a space before", "anna", " anna", false},
	{"a tab", "anna", "anna\t", false},
	{"a line end", "anna", "anna\n", false},
	{"NUL", "anna", "anna\x00", false},
	{"no-break space", "anna", "anna\u00a0", false},
	{"ideographic space", "anna", "anna\u3000", false},
	{"line separator", "anna", "an\u2028na", false},
	{"zero width at the end", "anna", "anna\u200b", false},
	{"byte order mark", "anna", "\ufeffanna", false},
	{"override", "anna", "an\u202ena", false},
	{"isolate", "anna", "an\u2066na", false},
	{"left-to-right mark", "anna", "anna\u200e", false},
	{"decomposed", "m\u00fcller", "mu\u0308ller", false},
	{"angstrom sign", "\u00c5", "\u212b", false},
	{"not UTF-8", "anna", "anna\xff", false},
	{"lone surrogate", "anna", "anna\xed\xa0\x80", false},
	{"what no decoder could read", "anna", "anna\ufffd", false},
	{"too long", strings.Repeat("x", 190), strings.Repeat("x", 191), false},
	{"empty", "anna", "", false},
	{"case", "anna", "Anna", true},
	{"case of another script", "\u03c9mega", "\u03a9mega", true},
	{"sharp s", "stra\u00dfe", "strasse", true},
	{"ligature", "\ufb01n", "fin", true},
	{"full width", "anna", "\uff41nna", true},
	{"Cyrillic", "anna", "\u0430nna", true},
	{"dotless i", "fin", "f\u0131n", true},
	{"accent", "mullers", "m\u00fcllers", true},
	{"zero width inside", "anna", "an\u200cna", true},
	{"longest", strings.Repeat("\u00fc", 189), strings.Repeat("\u00fc", 190), true},
}

// grant writes a key of a user past every check, as a release before or a hand has written it.
func (s *site) grant(user string) string {
	s.t.Helper()
	secret, key, err := s.keys.Create(s.t.Context(), auth.NewKey{UserID: "of-nobody", Role: taskstate.RoleUser})
	require.NoError(s.t, err)
	s.exec("UPDATE api_key SET user_id = ? WHERE id = ?", user, key.ID)
	return secret
}

// Two users are the same only when their ids are so byte for byte, on every database; what cannot be a user's id opens nothing.
func TestUsersWhoLookAlike(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		for _, p := range pairs {
			owner := s.secretOf(p.a)
			text := "an inventory of whales " + rand.Text()
			mine := s.upload(owner, asyncPath, []string{"Idempotency-Key", "k " + text}, file("a.txt", text))
			require.Equal(t, http.StatusAccepted, mine.Code, mine.Body.String())
			task := decode[wire.AcceptedTask](t, mine)

			body := string(web.Render(map[string]string{"userId": p.b}))
			made := s.send(s.secrets["operator"], http.MethodPost, "/internal/keys", body)
			_, _, err := s.keys.Create(t.Context(), auth.NewKey{UserID: p.b, Role: taskstate.RoleUser})
			if !p.fit {
				require.Equal(t, http.StatusUnprocessableEntity, made.Code, "%s: %s", p.name, made.Body)
				require.ErrorIs(t, err, auth.ErrInvalidInput, p.name)
				require.Equal(t, http.StatusBadRequest, s.filter(p.b), p.name)
				if p.b != "" && utf8.ValidString(p.b) && !strings.Contains(p.b, "\x00") && len(p.b) < 191 { // some database does not store the others
					s.refused(s.get(s.grant(p.b), "/api/knowledge/tasks"), http.StatusUnauthorized, web.CodeUnauthenticated)
				}
				continue
			}
			require.NoError(t, err, p.name)
			require.Equal(t, http.StatusCreated, made.Code, "%s: %s", p.name, made.Body)
			s.strangers(p.name, decode[wire.CreatedKey](t, made).Secret, text, task)
		}
	})
}

// strangers asserts that a caller reaches nothing of a task's owner.
func (s *site) strangers(name, caller, text string, task wire.AcceptedTask) {
	s.t.Helper()
	for _, path := range []string{"tasks/" + task.TaskID, "documents/" + string(task.DocumentID), "bases/" + task.Document.KnowledgeBaseID} {
		require.Equal(s.t, http.StatusNotFound, s.get(caller, "/api/knowledge/"+path).Code, "%s: %s", name, path)
		require.NotEqual(s.t, http.StatusNoContent, s.do(s.request(caller, http.MethodDelete, "/api/knowledge/"+path, nil)).Code, "%s: %s", name, path)
	}
	for _, path := range []string{"tasks", "documents", "bases"} {
		require.Empty(s.t, decode[wire.List[struct{}]](s.t, s.get(caller, "/api/knowledge/"+path)).Items, "%s: %s", name, path)
	}
	w := s.upload(caller, asyncPath, []string{"Idempotency-Key", "k " + text}, file("a.txt", text))
	require.Equal(s.t, http.StatusAccepted, w.Code, "%s: %s", name, w.Body)
	his := decode[wire.AcceptedTask](s.t, w)
	require.NotEqual(s.t, task.TaskID, his.TaskID, name)
	require.NotEqual(s.t, task.Document.KnowledgeBaseID, his.Document.KnowledgeBaseID, name)
}

// filter asks the audit log for one actor and returns the status.
func (s *site) filter(actor string) int {
	s.t.Helper()
	if actor == "" {
		return http.StatusBadRequest // no filter at all
	}
	return s.get(s.secrets["operator"], "/internal/audit?actor="+url.QueryEscape(actor)).Code
}

// names are two texts of one user that look alike: both can be a base's, and an idempotency key's.
var names = [][2]string{
	{"notes", "Notes"}, {"m\u00fcller", "mu\u0308ller"}, {"stra\u00dfe", "strasse"}, {"anna", "\uff41nna"}, {"anna", "an\u200bna"}, {"fin", "\ufb01n"},
}

// Names of bases and idempotency keys of one user are compared byte for byte too.
func TestNamesThatLookAlike(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		for i, n := range names {
			owner := s.secretOf("collector-" + string(rune('a'+i)))
			var bases, tasks []string
			for _, name := range n {
				w := s.send(owner, http.MethodPost, "/api/knowledge/bases", string(web.Render(map[string]string{"name": name})))
				require.Equal(t, http.StatusCreated, w.Code, "%+q: %s", name, w.Body)
				bases = append(bases, decode[wire.Base](t, w).KnowledgeBaseID)
				up := s.upload(owner, asyncPath, nil, part{"knowledgeBase", "", name}, file("a.txt", "the same text"))
				require.Equal(t, http.StatusAccepted, up.Code, "%+q: %s", name, up.Body)
				tasks = append(tasks, decode[wire.AcceptedTask](t, up).TaskID)
				got := s.get(owner, "/api/knowledge/bases/"+url.PathEscape(name))
				require.Equal(t, bases[len(bases)-1], decode[wire.Base](t, got).KnowledgeBaseID, "%+q", name)
			}
			require.NotEqual(t, bases[0], bases[1], "%+q", n)
			require.NotEqual(t, tasks[0], tasks[1], "%+q", n)
		}
	})
}
