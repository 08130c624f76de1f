module github.com/millweir/millweir/services/stream-worker

go 1.26.8
