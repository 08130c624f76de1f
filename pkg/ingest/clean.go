package ingest

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	MaxTitleChars = 500
	maxBaseChars  = 190
)

// Clean checks title and base and brings them into their kept form.
func (u *Upload) Clean() (err error) {
	if u.Title, err = cleanTitle(u.Title); err != nil {
		return err
	}
	u.Base, err = cleanBase(u.Base)
	return err
}

// cleanTitle checks a user's title.
func cleanTitle(title string) (string, error) {
	if !utf8.ValidString(title) {
		return "", fmt.Errorf("%w: it is not valid UTF-8", ErrBadTitle)
	}
	if n := utf8.RuneCountInString(title); n > MaxTitleChars {
		return "", fmt.Errorf("%w: %d characters, at most %d are allowed", ErrBadTitle, n, MaxTitleChars)
	}
	title = strings.TrimSpace(title)
	if strings.ContainsFunc(title, unicode.IsControl) {
		return "", fmt.Errorf("%w: it holds control characters", ErrBadTitle)
	}
	return title, nil
}

// cleanBase checks the name or id of a base; empty is the default base.
func cleanBase(name string) (string, error) {
	if name == "" {
		return DefaultBase, nil
	}
	switch {
	case !utf8.ValidString(name):
		return "", fmt.Errorf("%w: it is not valid UTF-8", ErrBadBaseName)
	case strings.TrimSpace(name) == "" || strings.TrimSpace(name) != name:
		return "", fmt.Errorf("%w: it begins or ends with white space", ErrBadBaseName)
	case utf8.RuneCountInString(name) > maxBaseChars:
		return "", fmt.Errorf("%w: more than %d characters", ErrBadBaseName, maxBaseChars)
	case strings.ContainsFunc(name, unicode.IsControl):
		return "", fmt.Errorf("%w: it holds control characters", ErrBadBaseName)
	}
	return name, nil
}
