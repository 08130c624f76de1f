// Package fsck judges a whole installation by the rules of deploy/docs/rules.md: the log of tasks, their rows, documents,
// versions, segments, vectors, files, the queue and its dead letters, and, where a lab keeps them, what the embedding
// service was asked (effects) and what clients saw (client log).
//
// Check is the one entry point. Each rule says how many events it judged; one whose evidence is missing is "not
// judged", never "passed". Rules I1–I11 are those of package history. Repair mends what Check found in the vector store.
//
// Memory: tasks are read in pages and their logs streamed; a document's segments are held one version at a time. What
// grows is the dead letters (one key each) and, in a lab, effects and the client log.
//
// Rows of a living installation move while they are looked at: what looks wrong is read again before it is called a
// violation, and rules that need a world at rest say so (Options.Rest).
package fsck
