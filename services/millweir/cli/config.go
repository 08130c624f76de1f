package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// settings is the file of profiles. It holds no key, only where one lies.
type settings struct {
	Current  string              `json:"current,omitempty"` // the profile that is used without --profile
	Profiles map[string]*profile `json:"profiles"`
}

// profile is one server and whence its key comes.
type profile struct {
	Server     string `json:"server,omitempty"`
	APIKeyFile string `json:"apiKeyFile,omitempty"`
	APIKeyEnv  string `json:"apiKeyEnv,omitempty"` // name of a variable
}

// shownProfile is a profile in a list.
type shownProfile struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	profile
}

const (
	defaultProfile = "default"
	maxConfig      = 1 << 20
	maxKeyFile     = 4 << 10
)

var (
	profileName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// place is a setting of a profile by its name.
func (p *profile) place(name string) (*string, error) {
	switch name {
	case "server":
		return &p.Server, nil
	case "api-key-file":
		return &p.APIKeyFile, nil
	case "api-key-env":
		return &p.APIKeyEnv, nil
	case "api-key":
		return nil, Usage("a key does not stand in the settings: write it into a file and set api-key-file, or name a variable with api-key-env")
	}
	return nil, Usage(fmt.Sprintf("unknown setting %q; there are server, api-key-file, api-key-env", name))
}

// configFile is where the profiles lie.
func (a *App) configFile() string { return filepath.Join(a.ConfigDir, "millweir", "config.json") }

// readSettings reads the profiles; none is no error.
func (a *App) readSettings() (settings, error) {
	s := settings{Profiles: map[string]*profile{}}
	if a.ConfigDir == "" {
		return s, nil
	}
	text, err := readSmall(a.configFile(), maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		err = dec.Decode(&s)
	}
	for name, p := range s.Profiles {
		if p == nil || !profileName.MatchString(name) {
			err = errors.Join(err, fmt.Errorf("profile %q is none", name))
		}
	}
	if err != nil {
		return s, BadInput(fmt.Errorf("%s: %w; mend it, or remove it and use millweir config set", a.configFile(), err))
	}
	if s.Profiles == nil {
		s.Profiles = map[string]*profile{}
	}
	return s, nil
}

// readSmall reads a regular file of at most most bytes.
func readSmall(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case info.Size() > most:
		return nil, fmt.Errorf("more than %d bytes", most)
	}
	return os.ReadFile(path)
}

// writeSettings replaces the file in one step; it is the user's alone.
func (a *App) writeSettings(s settings) error {
	if a.ConfigDir == "" {
		return BadInput(errors.New("there is no folder for settings: set HOME or XDG_CONFIG_HOME"))
	}
	if err := os.MkdirAll(filepath.Dir(a.configFile()), 0o700); err != nil {
		return Failed(err)
	}
	if err := ReplaceFile(a.configFile(), func(w io.Writer) error { return writeJSON(w, s) }); err != nil {
		return Failed(err)
	}
	return nil
}

// ReplaceFile writes a file in one step, for its user alone; after an error what was there stays.
func ReplaceFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".millweir-*") // mode 0600
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// useProfile takes server and key from the profile, where neither a flag nor the environment says them. The key of a profile goes
// to the server of that profile alone.
func (a *App) useProfile() error {
	a.key = a.Getenv("MILLWEIR_API_KEY")
	fromEnv := a.Getenv("MILLWEIR_SERVER") != ""
	if (a.Said("server") || fromEnv) && a.key != "" && a.profile == "" {
		return nil // nothing is left to say
	}
	s, err := a.readSettings()
	if err != nil {
		return err
	}
	name := a.profile
	if name == "" {
		name = s.Current
	}
	if name == "" {
		return nil
	}
	p := s.Profiles[name]
	if p == nil {
		return BadInput(fmt.Errorf("there is no profile %q; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(s.Profiles)), ", ")))
	}
	if !a.Said("server") && !fromEnv && p.Server != "" {
		a.Server = strings.TrimRight(p.Server, "/")
	}
	if a.key != "" || a.Server != strings.TrimRight(p.Server, "/") {
		return nil
	}
	a.key, err = p.key(a.Getenv)
	return err
}

// key reads the profile's key; empty: it has none.
func (p *profile) key(getenv func(string) string) (string, error) {
	switch {
	case p.APIKeyEnv != "":
		if key := getenv(p.APIKeyEnv); key != "" {
			return key, nil
		}
		return "", BadInput(fmt.Errorf("the profile takes the API key from the variable %s, which is not set", p.APIKeyEnv))
	case p.APIKeyFile == "":
		return "", nil
	}
	text, err := readSmall(p.APIKeyFile, maxKeyFile)
	if err != nil {
		return "", BadInput(fmt.Errorf("API key of the profile: %s: %w", p.APIKeyFile, err))
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return "", BadInput(fmt.Errorf("%s: one line with the API key is expected", p.APIKeyFile))
	}
	return key, nil
}

// config shows and changes profiles.
func config(a *App) *cobra.Command {
	g := Group("config", "servers and where their keys lie, by profile", configSet(a), configGet(a), configList(a), configUse(a))
	for _, c := range g.Commands() {
		c.Annotations = map[string]string{noProfile: "yes"}
	}
	return g
}

// noProfile marks verbs that run without a profile, so that a broken one can be mended.
const noProfile = "millweir/no-profile"

// named is the profile that a verb of config is about.
func (a *App) named(s settings) (string, error) {
	name := a.profile
	if name == "" {
		name = s.Current
	}
	if name == "" {
		name = defaultProfile
	}
	if !profileName.MatchString(name) {
		return "", Usage(fmt.Sprintf("--profile %q: letters, digits, ., _ and - are allowed, at most 64", name))
	}
	return name, nil
}

func configSet(a *App) *cobra.Command {
	return Verb("set SETTING VALUE [--profile NAME]", "set server, api-key-file or api-key-env; an empty value removes it", Needs("a setting", "a value"),
		func(_ context.Context, args []string) error {
			s, err := a.readSettings()
			if err != nil {
				return err
			}
			name, err := a.named(s)
			if err != nil {
				return err
			}
			p := s.Profiles[name]
			if p == nil {
				p = &profile{}
				s.Profiles[name] = p
			}
			place, err := p.place(args[0])
			if err != nil {
				return err
			}
			if *place, err = judged(args[0], args[1]); err != nil {
				return err
			}
			if s.Current == "" {
				s.Current = name
			}
			if err := a.writeSettings(s); err != nil {
				return err
			}
			return a.showProfile(s, name)
		})
}

// judged is a setting's value as it is kept.
func judged(setting, value string) (string, error) {
	switch {
	case value == "":
	case setting == "server":
		u, err := url.Parse(value)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return "", BadInput(fmt.Errorf("server %q: http://HOST or https://HOST is expected, without name and password", value))
		}
		return strings.TrimRight(value, "/"), nil
	case setting == "api-key-file":
		path, err := filepath.Abs(value)
		if err != nil {
			return "", err
		}
		if _, err := readSmall(path, maxKeyFile); err != nil {
			return "", BadInput(fmt.Errorf("%s: %w", path, err))
		}
		return path, nil
	case strings.HasPrefix(value, "mw_live_") || !variableName.MatchString(value):
		return "", BadInput(errors.New("api-key-env: the name of a variable is expected, not a key"))
	}
	return value, nil
}

func configGet(a *App) *cobra.Command {
	return Verb("get [--profile NAME]", "show a profile; never a key", Needs(), func(_ context.Context, _ []string) error {
		s, err := a.readSettings()
		if err != nil {
			return err
		}
		name, err := a.named(s)
		if err != nil {
			return err
		}
		if s.Profiles[name] == nil {
			return NotFound(fmt.Errorf("there is no profile %q", name))
		}
		return a.showProfile(s, name)
	})
}

// showProfile writes a profile that is there.
func (a *App) showProfile(s settings, name string) error {
	p := s.Profiles[name]
	return One(a, shownProfile{name, name == s.Current, *p}, func(w io.Writer) {
		f := fields{w}
		f.line("profile", name)
		f.line("server", p.Server)
		f.line("api-key-file", p.APIKeyFile)
		f.line("api-key-env", p.APIKeyEnv)
	})
}

func configList(a *App) *cobra.Command {
	return Verb("list", "list profiles", Needs(), func(_ context.Context, _ []string) error {
		s, err := a.readSettings()
		if err != nil {
			return err
		}
		var all []shownProfile
		for _, name := range slices.Sorted(maps.Keys(s.Profiles)) {
			all = append(all, shownProfile{name, name == s.Current, *s.Profiles[name]})
		}
		return Table(a, all, "PROFILE\tCURRENT\tSERVER\tKEY FROM", func(p shownProfile) []any {
			from := "-"
			if p.APIKeyEnv != "" {
				from = "variable " + p.APIKeyEnv
			} else if p.APIKeyFile != "" {
				from = p.APIKeyFile
			}
			current := "-"
			if p.Current {
				current = "yes"
			}
			return []any{p.Name, current, Clean(p.Server), Clean(from)}
		})
	})
}

func configUse(a *App) *cobra.Command {
	return Verb("use NAME", "use a profile from now on", Needs("a profile"), func(_ context.Context, args []string) error {
		s, err := a.readSettings()
		if err != nil {
			return err
		}
		if s.Profiles[args[0]] == nil {
			return NotFound(fmt.Errorf("there is no profile %q: make it with millweir config set server URL --profile %s", args[0], args[0]))
		}
		s.Current = args[0]
		if err := a.writeSettings(s); err != nil {
			return err
		}
		return a.showProfile(s, args[0])
	})
}
