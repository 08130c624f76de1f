module github.com/millweir/millweir/pkg/streammq

go 1.26.8

require (
	github.com/millweir/millweir/pkg v0.0.0 // tests start real servers with pkg/labserver
	github.com/redis/rueidis v1.0.79
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	github.com/millweir/millweir/migrations => ../../migrations
	github.com/millweir/millweir/pkg => ../
	github.com/millweir/millweir/pkg/taskstate => ../taskstate
	github.com/millweir/millweir/proto => ../../proto
)
