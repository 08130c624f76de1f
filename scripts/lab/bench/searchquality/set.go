// Package searchquality measures whether searches find: questions whose answer is known, over texts of our own in six languages.
package searchquality

import (
	"embed"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

//go:embed texts/*.txt
var texts embed.FS

const (
	// blocks are how many paragraphs a document has; one of them holds the answer.
	blocks = 5
	// sentences are how many sentences a paragraph has, without the answer.
	sentences = 13
)

// Kind is how a question asks for its answer.
type Kind string

// The kinds. The words of each but Paraphrase stand in the answer.
const (
	Exact      Kind = "exact word"    // one word that stands in no other text
	Keywords   Kind = "key words"     // three words in any order; the third stands in other texts too
	Half       Kind = "half sentence" // the second half of the sentence
	Code       Kind = "code"          // a number of a record, as INV-2024/17
	Misspelt   Kind = "misspelt"      // a word with one edit; in Chinese and Japanese a half sentence with one
	Paraphrase Kind = "paraphrase"    // the same in other words, where the texts have one
)

// kinds are all of them.
var kinds = []Kind{Exact, Keywords, Half, Code, Misspelt, Paraphrase}

// lexical are the kinds whose words stand in the answer as they are asked.
var lexical = []Kind{Exact, Keywords, Half, Code}

// Document is a text of one subject.
type Document struct {
	Language, Title string
	Paragraphs      []string
}

// Question is a question whose answer is known.
type Question struct {
	Language string
	Kind     Kind
	Query    string
	Answer   string // stands in the segments that answer it, and in no other text
}

// Set is all documents and questions.
type Set struct {
	Documents []Document
	Questions []Question
}

// source is a file of texts: values of slots, frames to fill, a frame for codes, subjects.
type source struct {
	language string
	slots    map[string][]string
	frames   []string
	coded    string
	subjects []subject
}

// subject is a title, the sentence that is looked for, three of its words, and the sentence in other words ("-": none).
type subject struct {
	title, sentence, paraphrase string
	words                       []string
}

// New composes the set; it is the same each time. Languages limits it; none: all.
func New(languages ...string) (Set, error) {
	files, err := texts.ReadDir("texts")
	if err != nil {
		return Set{}, err
	}
	var set Set
	for _, f := range files {
		language := strings.TrimSuffix(f.Name(), ".txt")
		if len(languages) > 0 && !slices.Contains(languages, language) {
			continue
		}
		raw, err := texts.ReadFile(path.Join("texts", f.Name()))
		if err != nil {
			return Set{}, err
		}
		src, err := parse(language, string(raw))
		if err != nil {
			return Set{}, fmt.Errorf("%s: %w", f.Name(), err)
		}
		src.compose(&set)
	}
	return set, nil
}

// parse reads a file of texts.
func parse(language, raw string) (source, error) {
	s := source{language: language, slots: map[string][]string{}}
	for line := range strings.Lines(raw) {
		line = strings.TrimRight(line, "\n")
		switch kind, rest, _ := strings.Cut(line, " "); {
		case line == "":
		case kind == "+":
			s.frames = append(s.frames, rest)
		case kind == "?":
			s.coded = rest
		case strings.HasPrefix(line, "="):
			name, values, _ := strings.Cut(line[1:], ": ")
			s.slots[name] = strings.Split(values, ", ")
		default:
			fields := strings.Split(line, "|")
			if len(fields) != 4 {
				return s, fmt.Errorf("%q is no subject: title|sentence|words|paraphrase", line)
			}
			one := subject{title: fields[0], sentence: fields[1], words: strings.Fields(fields[2]), paraphrase: fields[3]}
			if len(one.words) != 3 {
				return s, fmt.Errorf("%q has %d words, not 3", one.title, len(one.words))
			}
			s.subjects = append(s.subjects, one)
		}
	}
	return s, nil
}

// compose adds the language's documents and questions to a set. Each paragraph is frames with their slots filled; the answer
// stands in one of them. The third word of each subject is a thing that other documents speak of.
func (s source) compose(set *Set) {
	r := rand.New(rand.NewPCG(17, uint64(s.language[0])<<8|uint64(s.language[1]))) //nolint:gosec // the same texts each time
	for n, one := range s.subjects {
		code := fmt.Sprintf("%s-%d/%04d", strings.ToUpper(s.language), 2000+r.IntN(25), 7*n+r.IntN(7))
		d := Document{Language: s.language, Title: one.title}
		answer, coded := r.IntN(blocks), r.IntN(blocks)
		for i := range blocks {
			var all []string
			for range sentences {
				all = append(all, s.fill(r, n))
			}
			if i == answer {
				all = slices.Insert(all, r.IntN(len(all)), one.sentence)
			}
			if i == coded {
				all = slices.Insert(all, r.IntN(len(all)), strings.ReplaceAll(s.coded, "{code}", code))
			}
			d.Paragraphs = append(d.Paragraphs, strings.Join(all, s.space()))
		}
		set.Documents = append(set.Documents, d)
		ask := func(k Kind, query, answer string) {
			set.Questions = append(set.Questions, Question{Language: s.language, Kind: k, Query: query, Answer: answer})
		}
		half := s.half(one.sentence)
		words := slices.Clone(one.words)
		r.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
		ask(Exact, one.words[0], one.sentence)
		ask(Keywords, strings.Join(words, " "), one.sentence)
		ask(Half, half, one.sentence)
		ask(Code, code, code)
		if s.space() == "" {
			ask(Misspelt, s.misspell(r, half), one.sentence)
		} else {
			ask(Misspelt, s.misspell(r, one.words[0]), one.sentence)
		}
		if one.paraphrase != "-" {
			ask(Paraphrase, one.paraphrase, one.sentence)
		}
	}
}

// space is what stands between sentences and words.
func (s source) space() string {
	if s.language == "zh" || s.language == "ja" {
		return ""
	}
	return " "
}

// fill is a frame with its slots filled for the document of a subject.
func (s source) fill(r *rand.Rand, of int) string {
	out := s.frames[r.IntN(len(s.frames))]
	for _, slot := range []string{"person2", "person", "place", "month", "thing"} {
		values := s.slots[strings.TrimRight(slot, "2")]
		value := values[r.IntN(len(values))]
		if other := r.IntN(len(s.subjects)); slot == "thing" && other != of && r.IntN(3) == 0 {
			value = s.subjects[other].words[2]
		}
		out = strings.ReplaceAll(out, "{"+slot+"}", value)
	}
	return strings.ReplaceAll(out, "{n}", fmt.Sprint(2+r.IntN(90)))
}

// half is the second half of a sentence without its full stop.
func (s source) half(sentence string) string {
	sentence = strings.TrimRightFunc(sentence, unicode.IsPunct)
	if s.space() == "" {
		runes := []rune(sentence)
		return string(runes[len(runes)/2:])
	}
	words := strings.Fields(sentence)
	return strings.Join(words[len(words)/2:], " ")
}

// misspell makes one edit inside of a text: a letter left out, doubled, replaced by a neighbour of it, or two exchanged.
func (s source) misspell(r *rand.Rand, text string) string {
	runes := []rune(text)
	at := 1 + r.IntN(max(1, len(runes)-2))
	if s.space() == "" { // a character of another text in its place
		other, _ := utf8.DecodeRuneInString(s.subjects[r.IntN(len(s.subjects))].words[2])
		runes[at] = other
		return string(runes)
	}
	for range len(runes) { // the edit must change the word
		edited := slices.Clone(runes)
		switch r.IntN(4) {
		case 0:
			edited = slices.Delete(edited, at, at+1)
		case 1:
			edited = slices.Insert(edited, at, edited[at])
		case 2:
			edited[at] = runes[r.IntN(len(runes))]
		default:
			edited[at-1], edited[at] = edited[at], edited[at-1]
		}
		if !slices.Equal(edited, runes) {
			return string(edited)
		}
	}
	return string(runes[1:])
}
