package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// LoadEnvFile sets the variables of a file in the process's environment, except those that are set there
// already. Lines are NAME=value, `export ` before and # comments are allowed; a value may stand in 'single'
// quotes (taken as it is) or "double" quotes (\n, \t, \" and \\ are understood). An error names file and
// line.
//
// The libraries for such files do not do: joho/godotenv replaces $NAME inside a value, takes a line without =
// for a variable without a name, and shows the text of the file in its errors; hashicorp/go-envparse ends a
// value at any #. Each of them changes a password that has such a character.
func LoadEnvFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("env file: %w", err)
	}
	vars, err := parseEnv(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("env file %s: %w", path, err)
	}
	for _, v := range vars {
		if _, set := os.LookupEnv(v[0]); set {
			continue
		}
		if err := os.Setenv(v[0], v[1]); err != nil {
			return fmt.Errorf("env file %s: %s: %w", path, v[0], err)
		}
	}
	return nil
}

var validName = regexp.MustCompile(`^[A-Za-z_][0-9A-Za-z_]*$`)

func parseEnv(r io.Reader) (vars [][2]string, err error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		name, raw, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || !validName.MatchString(name) {
			return nil, fmt.Errorf("line %d: want NAME=value", n) // not the line itself: it may hold a secret
		}
		value, err := envValue(strings.TrimSpace(raw))
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", n, name, err)
		}
		vars = append(vars, [2]string{name, value})
	}
	return vars, lines.Err()
}

var unescape = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`, `\\`, `\`, `\$`, `$`)

func envValue(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	q := raw[0]
	if q != '\'' && q != '"' {
		// As in a shell, # begins a comment only after a blank: URLs have fragments.
		value, _, _ := strings.Cut(raw, " #")
		return strings.TrimSpace(value), nil
	}
	for i := 1; i < len(raw); i++ {
		if q == '"' && raw[i] == '\\' {
			i++
			continue
		}
		if raw[i] != q {
			continue
		}
		if rest := strings.TrimSpace(raw[i+1:]); rest != "" && rest[0] != '#' {
			return "", errors.New("text after the closing quote")
		}
		if q == '"' {
			return unescape.Replace(raw[1:i]), nil
		}
		return raw[1:i], nil
	}
	return "", errors.New("the quote is not closed")
}
