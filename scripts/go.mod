module github.com/millweir/millweir/scripts

go 1.26.8

require (
	github.com/millweir/millweir/migrations v0.0.0
	github.com/millweir/millweir/pkg v0.0.0
	github.com/millweir/millweir/pkg/taskstate v0.0.0
	github.com/millweir/millweir/proto v0.0.0
)

replace (
	github.com/millweir/millweir/migrations => ../migrations
	github.com/millweir/millweir/pkg => ../pkg
	github.com/millweir/millweir/pkg/taskstate => ../pkg/taskstate
	github.com/millweir/millweir/proto => ../proto
)
