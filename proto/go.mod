module github.com/millweir/millweir/proto

go 1.26.8
