module github.com/millweir/millweir/migrations

go 1.26.8
