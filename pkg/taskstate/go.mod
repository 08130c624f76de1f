module github.com/millweir/millweir/pkg/taskstate

go 1.26.8
