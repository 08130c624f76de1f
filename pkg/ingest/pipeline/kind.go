package pipeline

import "errors"

// ErrNoWorker says that App.Kind was asked of an App without an extractor, splitter, embedder or vector store.
var ErrNoWorker = errors.New("this process has no extractor: it does not process documents")
