// Package split cuts a document's blocks into segments of bounded size.
//
// It is recursive and knows headings: a section begins a segment, a full segment ends between sentences,
// a sentence that is too long ends at a line, a clause, a word, and only at last inside a run of characters.
// A table's pieces repeat its header row; code is cut between lines and never re-flowed.
// The same blocks always give the same segments, and no text is lost.
package split
