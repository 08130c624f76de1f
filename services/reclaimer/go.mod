module github.com/millweir/millweir/services/reclaimer

go 1.26.8
