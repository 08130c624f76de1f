package ingest

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	MaxTitleChars = 500
	maxBaseChars  = 128
)

// TextError says why a text that a client sent is refused. 422
type TextError struct {
	Field string // as the client named it
	Long  bool   // it has too many characters, or keys
	Form  bool   // it is text, but not of the form that it must have; without Long and Form it is no text
	why   string
}

// Error names the field and what is wrong with it.
func (e *TextError) Error() string { return e.Field + " " + e.why }

// Clean checks title, metadata and base and brings them into their kept form. *TextError; *Failure for an archive.
func (u *Upload) Clean() (err error) {
	if IsArchive(u.File.MediaType) {
		return notADocument(u.File.MediaType)
	}
	if u.Title, err = CleanTitle("title", u.Title); err != nil {
		return err
	}
	if u.Metadata, err = ParseMetadata("metadata", string(u.Metadata)); err != nil {
		return err
	}
	if u.Base, err = CleanBase("knowledgeBase", u.Base); u.Base == "" {
		u.Base = DefaultBase
	}
	return err
}

// CleanTitle is a user's title without white space around it. *TextError when it cannot be one.
func CleanTitle(field, title string) (string, error) {
	title = strings.TrimSpace(title)
	return title, CheckLine(field, title, MaxTitleChars)
}

// CleanBase is the id or name of a base without white space around it; empty stays empty. *TextError when it cannot be one.
func CleanBase(field, idOrName string) (string, error) {
	idOrName = strings.TrimSpace(idOrName)
	return idOrName, CheckLine(field, idOrName, maxBaseChars)
}

// CheckText refuses text that is too long, not UTF-8 or has control characters (line ends and tabs apart). *TextError.
func CheckText(field, text string, maxChars int) error {
	if !utf8.ValidString(text) {
		return &TextError{Field: field, why: "is not valid UTF-8"}
	}
	if n := utf8.RuneCountInString(text); n > maxChars {
		return &TextError{Field: field, Long: true, why: fmt.Sprintf("has %d characters, allowed are %d", n, maxChars)}
	}
	for _, r := range text {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return &TextError{Field: field, why: fmt.Sprintf("has the control character %U", r)}
		}
	}
	return nil
}

// CheckLine is CheckText for a text of one line.
func CheckLine(field, text string, maxChars int) error {
	if err := CheckText(field, text, maxChars); err != nil {
		return err
	}
	if strings.ContainsAny(text, "\r\n\t") {
		return &TextError{Field: field, why: "has a line end or a tab"}
	}
	return nil
}
