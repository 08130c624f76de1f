module github.com/millweir/millweir/services/millweir

go 1.26.8
