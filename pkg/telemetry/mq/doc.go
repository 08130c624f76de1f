// Package mq is the telemetry of streammq: an observer that counts what the library does (Prometheus figures, and OTel metrics
// where they are exported), a collector that shows what topics hold, and spans of messages.
// It is a package of its own because telemetry imports no queue and streammq imports nothing of this repository.
package mq
